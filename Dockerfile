# `farcore serve` from this checkout:
#   docker build -t farcore .
#   docker run --rm -p 127.0.0.1:6379:6379 --ulimit memlock=-1 \
#       --security-opt seccomp=unconfined farcore --local 256MiB --far 1GiB --open-to-all
# Docker's default seccomp profile forbids io_uring, which the engine needs.
FROM rust:1.93-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --profile published --locked -p farcore-tools

FROM debian:bookworm-slim
COPY --from=build /source/target/published/farcore /usr/local/bin/farcore
RUN useradd --system --no-create-home farcore
USER farcore
EXPOSE 6379
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/farcore", "serve", "--resp", "0.0.0.0:6379"]
