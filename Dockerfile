# danseo for CPUs:
#   docker build -t danseo .
#   docker run --rm -v "$PWD:/work" --user "$(id -u)" danseo demo
# Every package has the version and hash of locks/; torch has its version. With --build-arg TORCH_INDEX=URL, torch comes
# from another package index: that of its CPU builds makes the image some gigabytes smaller.
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS build
ARG TORCH_INDEX=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/danseo
ENV PATH=/opt/danseo/bin:$PATH
WORKDIR /source
COPY locks/build.txt locks/demo.txt locks/torch.txt locks/
RUN pip install --no-deps --no-build-isolation --require-hashes -r locks/build.txt \
    && pip install --no-deps --no-build-isolation --require-hashes -r locks/demo.txt \
    && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r locks/torch.txt
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY docs docs
COPY src src
RUN pip install --no-deps --no-build-isolation . && danseo --version

FROM python:${PYTHON}
COPY --from=build /opt/danseo /opt/danseo
RUN useradd --create-home --uid 1000 danseo && install -d -o danseo /work
# The cache is writable for every --user.
ENV PATH=/opt/danseo/bin:$PATH DANSEO_CACHE=/tmp/danseo MPLCONFIGDIR=/tmp/matplotlib HF_HUB_DISABLE_TELEMETRY=1
WORKDIR /work
USER danseo
ENTRYPOINT ["danseo"]
CMD ["--help"]
