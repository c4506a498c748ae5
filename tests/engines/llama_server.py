"""llama.cpp's own HTTP server with the demo model, as a process: its address on stdout, ended by its pid."""

from __future__ import annotations

import sys
import threading

import xllamacpp

from rowmill.engines import demo_model


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = str(demo_model())
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel = 2048, 4
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 2
    params.warmup = False
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
