// wasi.js -- the little of an operating system that `ambi check` needs: arguments, a clock, lines of output, and files
// that are read from memory. It gives a program nothing else.

const errno = { success: 0, badf: 8, inval: 28, noent: 44, nosys: 52, spipe: 70 };
const types = { device: 2, folder: 3, file: 4 };
const rightsAll = 0xffffffffn;

class Exit {
  constructor(code) {
    this.code = code;
  }
}

/** Bytes into lines; `take` gets each without its end. */
function lines(take) {
  const text = new TextDecoder();
  let rest = '';
  return (bytes) => {
    const parts = (rest + text.decode(bytes, { stream: true })).split('\n');
    rest = parts.pop();
    for (const line of parts) take(line);
  };
}

class System {
  constructor({ args, files, out, err }) {
    this.args = args.map((a) => new TextEncoder().encode(`${a}\0`));
    this.files = files;
    this.open = new Map([
      [0, { type: types.device }],
      [1, { type: types.device, write: lines(out) }],
      [2, { type: types.device, write: lines(err) }],
      [3, { type: types.folder, name: '/' }],
    ]);
  }

  get view() {
    return new DataView(this.memory.buffer);
  }
  bytes(at, length) {
    return new Uint8Array(this.memory.buffer, at >>> 0, length);
  }
  u32(at, value) {
    this.view.setUint32(at >>> 0, value, true);
    return errno.success;
  }
  u64(at, value) {
    this.view.setBigUint64(at >>> 0, BigInt(value), true);
    return errno.success;
  }
  /** The pieces of memory that a scattered read or write names. */
  pieces(at, count) {
    const v = this.view;
    const piece = (i) => this.bytes(v.getUint32(at + 8 * i, true), v.getUint32(at + 8 * i + 4, true));
    return Array.from({ length: count }, (_, i) => piece(i));
  }
  read(fd, at, count, where, result) {
    const f = this.open.get(fd);
    if (!f?.data) return errno.badf;
    let done = 0;
    for (const piece of this.pieces(at, count)) {
      const part = f.data.subarray(where + done, where + done + piece.length);
      piece.set(part);
      done += part.length;
    }
    this.u32(result, done);
    return done;
  }
}

/** The functions of wasi_snapshot_preview1, over a System. */
function calls(s) {
  const text = new TextDecoder();
  const put = (list, at, buffer) => {
    for (const bytes of list) {
      s.u32(at, buffer);
      s.bytes(buffer, bytes.length).set(bytes);
      at += 4;
      buffer += bytes.length;
    }
    return errno.success;
  };
  return {
    args_sizes_get(count, size) {
      return s.u32(count, s.args.length) || s.u32(size, s.args.reduce((n, a) => n + a.length, 0));
    },
    args_get: (at, buffer) => put(s.args, at, buffer),
    environ_sizes_get: (count, size) => s.u32(count, 0) || s.u32(size, 0),
    environ_get: () => errno.success,
    clock_time_get: (_id, _precision, at) => s.u64(at, Math.round(performance.now() * 1e6)),
    proc_exit: (code) => {
      throw new Exit(code);
    },
    fd_write(fd, at, count, result) {
      const f = s.open.get(fd);
      if (!f?.write) return errno.badf;
      let done = 0;
      for (const piece of s.pieces(at, count)) {
        f.write(piece.slice());
        done += piece.length;
      }
      return s.u32(result, done);
    },
    fd_read(fd, at, count, result) {
      const f = s.open.get(fd);
      const done = s.read(fd, at, count, f?.at ?? 0, result);
      if (f?.data) f.at += done;
      return f?.data ? errno.success : errno.badf;
    },
    fd_pread: (fd, at, count, where, result) => (s.read(fd, at, count, Number(where), result) && 0) || errno.success,
    fd_seek(fd, offset, whence, result) {
      const f = s.open.get(fd);
      if (!f?.data) return errno.spipe;
      f.at = Number(offset) + [0, f.at, f.data.length][whence];
      return s.u64(result, f.at);
    },
    fd_close: (fd) => (s.open.delete(fd) ? errno.success : errno.badf),
    fd_fdstat_get(fd, at) {
      const f = s.open.get(fd);
      if (!f) return errno.badf;
      s.bytes(at, 24).fill(0);
      s.view.setUint8(at, f.type);
      return s.u64(at + 8, rightsAll) || s.u64(at + 16, rightsAll);
    },
    fd_filestat_get(fd, at) {
      const f = s.open.get(fd);
      if (!f) return errno.badf;
      s.bytes(at, 64).fill(0);
      s.view.setUint8(at + 16, f.type);
      return s.u64(at + 32, f.data?.length ?? 0);
    },
    fd_prestat_get: (fd, at) => (s.open.get(fd)?.name ? s.u32(at, 0) || s.u32(at + 4, 1) : errno.badf),
    fd_prestat_dir_name: (_fd, at) => (s.bytes(at, 1).set([47]), errno.success),
    path_open(_folder, _flags, at, length, _create, _rights, _inherit, _fdflags, result) {
      const path = text.decode(s.bytes(at, length).slice());
      const data = s.files[path];
      if (!data) return errno.noent;
      const fd = Math.max(...s.open.keys()) + 1;
      s.open.set(fd, { type: types.file, data, at: 0 });
      return s.u32(result, fd);
    },
  };
}

/** Runs a WASI program to its end. Gives its exit status. files: {'vectors/ops.json': Uint8Array, ..}. */
export async function runProgram(module, { args, files = {}, out = console.log, err = console.error }) {
  const system = new System({ args, files, out, err });
  const given = calls(system);
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module))
    (imports[from] ??= {})[name] = given[name] ?? (() => errno.nosys);
  const { exports } = await WebAssembly.instantiate(module, imports);
  system.memory = exports.memory;
  try {
    exports._start();
    return 0;
  } catch (e) {
    if (e instanceof Exit) return e.code;
    throw e;
  }
}
