# dqnspeed in a container, as a user without rights, on a CPU or a GPU:
#   docker build -t dqnspeed .
#   docker build --build-arg TORCH=cu130 -t dqnspeed:cuda .
#   mkdir -p outputs multirun
#   docker run --rm --shm-size=1g --user "$(id -u)" -e HOME=/tmp -v "$PWD/outputs:/home/agent/outputs" \
#     -v "$PWD/multirun:/home/agent/multirun" dqnspeed experiment=speedrun
FROM python:3.12-slim-bookworm

# The wheels of torch: cpu, or those of a version of CUDA; EXTRAS of dqnspeed.
ARG TORCH=cpu
ARG EXTRAS=emulator,ray,report

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /src
COPY constraints.txt ./
# Before the code, so that a change of it does not fetch torch again.
RUN pip install --index-url "https://download.pytorch.org/whl/${TORCH}" -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY conf ./conf
COPY hydra_plugins ./hydra_plugins
COPY dqnspeed ./dqnspeed
COPY packages ./packages
RUN pip install -c constraints.txt ./packages/atari-warp ".[${EXTRAS}]" && useradd --create-home --uid 1000 agent && install -d -o agent /home/agent/outputs /home/agent/multirun

USER 1000
WORKDIR /home/agent
ENTRYPOINT ["dqnspeed-train"]
