// Types of pack.js: the host of kernel packs.
export { AmbiError } from './ambi.js';

/** An Ed25519 public key: 32 bytes, or 64 hex digits. */
export type Key = Uint8Array | string;
export type View = ArrayBufferView;

export interface HostOptions {
  trusted?: readonly Key[];
  /** Signatures by these are refused, trusted or not. */
  revoked?: readonly Key[];
  /** The only modules a pack may have; none: all that the signer vouches for. */
  allowed?: readonly { id: string; hash: string }[];
  /**
   * Remembers the newest version of each pack ever activated; absent: in this host alone. Loaded again before each
   * check and each save, and hosts that are given the same object take turns.
   */
  state?: {
    load(): Record<string, string> | null | undefined | Promise<Record<string, string> | null | undefined>;
    save(state: Record<string, string>): unknown;
  };
  /** Told about each check, in order; and of each kernel that cannot be used, also where its fallback is. */
  report?: (check: string, passed: boolean, sentence: string) => void;
  /** Milliseconds that a call may take at most, whatever the manifest asks for; 0 or absent: 60000. */
  most_ticks?: number;
  /** Pages of 64 KiB that a kernel may have at most, likewise; 0 or absent: 65536. */
  most_pages?: number;
  /** Needs `report`, which is told each time. */
  insecure_accept_unsigned_packs_for_development?: boolean;
}

export interface Call {
  pass?: 'forward' | 'backward';
  a?: View;
  b?: View;
  /** An array to write, or a number of bytes. The kernel finds zeros there. */
  out?: View | number;
  /** The same, but of an array the kernel finds the contents. */
  scratch?: View | number;
  /** The bytes, or numbers by name: those left out are the manifest's defaults. */
  params?: View | Record<string, number>;
  /** One more input, of kernels whose longer params end in its offset and size. */
  weight?: View;
  /**
   * Milliseconds from the call's turn to its result, at most those of the manifest. A new worker, where the call needs
   * one, begins within them.
   */
  ticks?: number;
}

/** Float32Arrays; Uint8Arrays of regions whose size is no multiple of 4. */
export interface Results {
  out: Float32Array | Uint8Array;
  scratch: Float32Array | Uint8Array;
}

/** A handle: each `pack.kernel()` gives one of its own. */
export interface Kernel {
  readonly id: string;
  readonly backward: boolean;
  /** In the order of their words; absent: what is taken where none is given. */
  readonly params: readonly { name: string; type: string; absent: number; min: number; max: number }[];
  /**
   * Inputs are copied before it returns. Calls of one kernel wait for one another. A trap, a deadline or a refused
   * growth ends the instance, not the host.
   */
  run(call: Call): Promise<Results>;
  /** Ends this handle's calls, and no others. The worker ends with the kernel's last handle. */
  close(): void;
}

export interface Pack {
  readonly name: string;
  readonly version: string;
  readonly kernels: readonly string[];
  /** Compiled and self-tested; the fallback where the kernel cannot be used. */
  kernel(id: string): Promise<Kernel>;
  /** What was opened from it, or made active, stays. */
  close(): void;
}

/** The URL of a folder (in node also a path), its files by name, or a function that reads one. */
export type Source =
  | string | URL | Record<string, Uint8Array>
  | ((name: string, most: number) => Promise<Uint8Array | undefined> | Uint8Array | undefined);

export class PackHost {
  constructor(options?: HostOptions);
  /** Verifies; nothing is compiled. */
  open(source: Source): Promise<Pack>;
  /** Tests every kernel of the pack, or its fallback, then switches to it. Calls under way finish on the old one. */
  swap(pack: Pack): Promise<void>;
  /** To the pack before, once. */
  rollback(): void;
  /** A call of the active pack's kernel. */
  run(id: string, call: Call): Promise<Results>;
  /** The active pack ends with it, and no other becomes active; what else was opened stays. */
  close(): void;
}

/** 'sha256:<hex>' */
export function hashOf(bytes: Uint8Array): Promise<string>;
export const runtimeVersion: string;
