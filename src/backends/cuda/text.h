/* text.h -- the kernel texts of this folder, embedded by the build (cmake/embed.cmake). */
#ifndef AMBI_CUDA_TEXT_H
#define AMBI_CUDA_TEXT_H

extern const char prelude_cu[], scalar_cu[], math_cu[], math_half_cu[], math_half_names_cu[], math_f64_cu[], rows_cu[],
    pointwise_cu[], matrices_cu[], gemm_cu[], halves_cu[], gemm16_cu[], gemm90_cu[], tensor_cu[], barriers_cu[],
    wgmma_cu[], ffma_cu[];
extern const char norm_cu[], logits_cu[], queue_cu[];
extern const char lines_cu[];
extern const char *const function_text[]; /* elementwise.def, by ambi_function */

#endif
