// Types of ambi.js: neural-network kernels that run forwards and backwards.

export type Dtype = 'f32' | 'f16' | 'bf16' | 'f64' | 'i32' | 'i64' | 'u8';
/** Where the compiler's library has it (lib.esnext.float16), else nothing. */
type MaybeFloat16Array = typeof globalThis extends { Float16Array: { prototype: infer T } } ? T : never;
/** f16 and bf16 travel as their bits, in a Uint16Array; f16 also in a Float16Array, where the engine has it. */
export type TypedArray =
  | MaybeFloat16Array
  | Float32Array | Float64Array | Uint16Array | Int32Array | BigInt64Array | Uint8Array | Uint8ClampedArray;
export type Status =
  | 'invalid' | 'unsupported' | 'no memory' | 'no device' | 'compile failed' | 'device lost' | 'denied' | 'timeout';

/** Every failure: a sentence that names the slot, what was expected and what was given. */
export class AmbiError extends Error {
  readonly status: Status;
  constructor(message: string, status?: Status);
}

export interface Slot {
  readonly name: string;
  /** In the op's own symbols: "(B, D, L)". */
  readonly shape: string;
  readonly doc: string;
  readonly output: boolean;
  readonly optional: boolean;
  /** No gradient flows into it (input) or arrives on it (output). */
  readonly noGrad: boolean;
  /** An output of forward that backward reads when it is described. */
  readonly saved: boolean;
  readonly integer: boolean;
  readonly anyDtype: boolean;
}

export interface Attribute {
  readonly name: string;
  readonly doc: string;
  readonly type: 'number' | 'integer' | 'boolean' | 'enum';
  readonly default: number | boolean | string;
  readonly min: number;
  readonly max: number;
  /** Of an enum. */
  readonly values?: readonly string[];
}

export interface Op {
  readonly name: string;
  readonly formula: string;
  readonly gradient: string;
  readonly doc: string;
  readonly slots: readonly Slot[];
  readonly attrs: readonly Attribute[];
  /** Whether there is a backward pass. */
  readonly backward: boolean;
  /** [output, input] pairs that may be one array. */
  readonly inPlace: readonly (readonly [string, string])[];
}

/** A shape; or a shape with a dtype, strides in elements, and the element of its array that it begins at. */
export type Tensor =
  | readonly number[]
  | { shape: readonly number[]; dtype?: Dtype; stride?: readonly number[]; offset?: number };

export interface Description {
  /** A name of `ambi.ops`. */
  op: string;
  pass?: 'forward' | 'backward';
  /** Of floating tensors that name none: 'f32'. Integer slots have 'i32' then. */
  dtype?: Dtype;
  /** By slot. Outputs may be left out and are then inferred. */
  tensors: Record<string, Tensor>;
  /** Gradients that differ from their slot in dtype or strides, by slot. */
  grads?: Record<string, Tensor>;
  /** backward: the inputs whose gradients are wanted (all); forward: optional outputs that are. */
  want?: readonly string[];
  /** Inputs whose gradients are added to what is there. */
  accumulate?: readonly string[];
  attrs?: Record<string, number | boolean | string>;
}

export interface PlanInfo {
  readonly kernel: string;
  readonly workspace: number;
  readonly flops: number;
  readonly bytes: number;
  readonly accumulator: Dtype;
  readonly deterministic: boolean;
}

export interface PlanSlot {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly stride: readonly number[];
  readonly offset: number;
  readonly read: boolean;
  readonly written: boolean;
}

declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol; // as in lib.esnext.disposable, which older compilers lack
  }
}

/** Freed once: by free(), by `using`, or when it is forgotten. */
export interface Handle {
  readonly freed: boolean;
  free(): void;
  [Symbol.dispose](): void;
}

/** Made once, run many times. */
export interface Plan extends Handle {}
export class Plan {
  private constructor();
  readonly op: string;
  readonly pass: 'forward' | 'backward';
  readonly info: PlanInfo;
  /** What a run reads and writes: 'x', 'y', and 'dx', 'dy' for gradients. */
  readonly slots: Readonly<Record<string, PlanSlot>>;
  /** Outputs that are not given are made. Returns all outputs. */
  run(arrays?: Record<string, TypedArray | Buffer>): Record<string, any>;
}

/** Elements that live in the module: a run does not copy them. */
export interface Buffer extends Handle {}
export class Buffer {
  private constructor();
  readonly dtype: Dtype;
  readonly length: number;
  readonly byteLength: number;
  write(array: TypedArray, at?: number): this;
  /** As many elements as `into` holds, or all of them into a new array, from `at` on. */
  read<T extends TypedArray = any>(into?: T, at?: number): T;
}

/** free() closes the device and ends its threads: no plan on it can be used any longer. */
export interface Ambi extends Handle {
  readonly version: string;
  /** module: the file that was loaded, or 'given'. */
  readonly device: { readonly name: string; readonly isa: string; readonly threads: number; readonly module: string };
  readonly ops: Readonly<Record<string, Op>>;
  readonly memoryBytes: number;
  plan(description: Description): Plan;
  buffer(dtype: Dtype, contents: number | TypedArray): Buffer;
  convert(array: TypedArray, from: Dtype, to: Dtype): any;
}

export interface LoadOptions {
  /** 'cpu', or 'ref', the f64 reference. */
  device?: 'cpu' | 'ref';
  /** How many in all (1), or 'all': as many as there are cores, where memory may be shared. The bits are the same. */
  threads?: number | 'all';
  /** Take relaxed SIMD where the engine has it (true): faster; false for bits that depend on no processor. */
  relaxed?: boolean;
  /** Where ambi.wasm or ambi-relaxed.wasm is, when not beside ambi.js: a URL, its bytes, or the compiled
   *  module, whose memory is shared with one thread too: where a page may not have that, give a URL or bytes. */
  wasm?: string | URL | ArrayBuffer | Uint8Array | WebAssembly.Module;
}

export function load(options?: LoadOptions): Promise<Ambi>;
export function dtypeBytes(dtype: Dtype): number;
export const dtypeNames: readonly Dtype[];
