// Types of check.js: `ambi check` on the kernels that load() takes.

export interface Report {
  passed: number;
  failed: number;
  skipped: number;
  lines: string[];
  /** 0: all passed; 1: something failed; 2: nothing could be run. */
  status: number;
}

/** Keeps its thread busy until it ends: in a page, run it in a worker. options: those of `ambi check`. */
export function check(
  options?: string[],
  how?: {
    onLine?: (line: string) => void;
    vectors?: Record<string, Uint8Array>;
    /** Those of ambi-relaxed.wasm where the engine has relaxed SIMD (true), or always those of ambi.wasm (false). */
    relaxed?: boolean;
    wasm?: string | URL | ArrayBuffer | Uint8Array | WebAssembly.Module;
  },
): Promise<Report>;
