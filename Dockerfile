# Builds two images: `worker`, the name service, and `pipeline`, the same plus Spark and a Java runtime.
# `make image` builds both with Docker or podman; docs/image.md explains.

# Any image with a shell and Python >= 3.11 with the venv module.
ARG BASE=python:3.13-slim


# The build tools; they are not part of the final images. Two optional secrets, for machines with their own package
# index or certificates: `pip` (a pip.conf) and `ca` (a bundle of certificates).
FROM ${BASE} AS installer
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_CONFIG_FILE=/run/secrets/pip
WORKDIR /build
COPY requirements-build.lock ./
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/routebook
RUN --mount=type=secret,id=pip --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    tools/bin/pip install --quiet --require-hashes --no-deps -r requirements-build.lock


# Builds Routebook's wheel in a stage of its own, so that a changed source does not rebuild the packages below.
FROM installer AS wheel
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY deploy/build_metadata.py deploy/
COPY lua lua
COPY service service
COPY pipeline pipeline
RUN tools/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .


# Compiles all modules here with unchecked-hash, so that Python uses the compiled files without checking the sources and
# a read-only root starts as fast as a writable one.
FROM installer AS worker-packages
COPY requirements-image.lock ./
RUN --mount=type=secret,id=pip --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    tools/bin/pip --python /opt/routebook/bin/python install --quiet --no-compile \
        --only-binary :all: --require-hashes --no-deps -r requirements-image.lock \
    && rm -f /opt/routebook/bin/[Aa]ctivate* \
    && /opt/routebook/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/routebook/lib
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/routebook/bin/python install --quiet --no-compile --no-deps --no-index dist/*.whl \
    && /opt/routebook/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/routebook/lib/*/site-packages/routebook*
COPY --chmod=755 deploy/healthcheck.py /opt/routebook/bin/healthcheck


# Builds wheels first: Spark is published as a source archive, and must be built with the locked setuptools instead of the
# newest one, and with fixed times (1980, the first that a wheel can have), so that each build gives the same files.
# Removes unused parts of the large packages: the shell of Spark's Connect server, and Arrow Flight.
FROM installer AS pipeline-packages
COPY requirements-pipeline.lock ./
RUN --mount=type=secret,id=pip --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    SOURCE_DATE_EPOCH=315532800 tools/bin/python -m pip wheel --quiet --no-build-isolation --wheel-dir wheels \
        --require-hashes --no-deps -r requirements-pipeline.lock \
    && tools/bin/pip --python /opt/routebook/bin/python install --quiet --no-compile --no-deps --no-index wheels/*.whl \
    && rm -rf wheels /opt/routebook/bin/[Aa]ctivate* \
    && cd /opt/routebook/lib/*/site-packages \
    && rm -rf pyspark/jars/connect-repl pyarrow/include pyarrow/tests pyarrow/*flight* \
    && /opt/routebook/bin/python -m compileall -q --invalidation-mode unchecked-hash .
COPY --from=wheel /build/dist dist
# Unpacks the Java runtime of its wheel now, because the root file system is read-only at run time.
RUN tools/bin/pip --python /opt/routebook/bin/python install --quiet --no-compile --no-deps --no-index dist/*.whl \
    && /opt/routebook/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/routebook/lib/*/site-packages/routebook* \
    && XDG_CACHE_HOME=/build /opt/routebook/bin/python -c 'from routebook_pipeline.java import *; find_java_home()' \
    && mv /build/routebook/java-* /opt/routebook/java \
    && /opt/routebook/java/bin/java -version


# The base without tools that install, build or test, without setuid programs, and with the user. The public base contains
# Debian's package manager and Perl; the base of deploy/build_python_base.sh contains neither.
FROM ${BASE} AS root
RUN stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
    && python3 -m compileall -q "$stdlib" \
    && rm -rf "$stdlib"/ensurepip "$stdlib"/idlelib "$stdlib"/lib2to3 "$stdlib"/pydoc_data "$stdlib"/test \
        "$stdlib"/tkinter "$stdlib"/turtle* "$stdlib"/config-* "$stdlib"/*-packages/pip* /usr/local/bin/pip* \
        /usr/local/bin/idle* /usr/local/bin/pydoc* /usr/local/bin/*-config /usr/local/include /usr/include \
        /usr/share/python-wheels /usr/lib/python3/dist-packages/pip* /usr/share/doc /usr/share/man /usr/share/locale \
        /usr/bin/apt* /usr/lib/apt /etc/apt /var/lib/apt /usr/lib/*/libapt* /usr/bin/sqv \
        /usr/bin/dpkg* /usr/sbin/dpkg* /usr/lib/dpkg /usr/libexec/dpkg /usr/share/dpkg /etc/dpkg /var/lib/dpkg/info \
        /usr/bin/update-alternatives /usr/bin/debconf* /usr/share/debconf /etc/debconf.conf \
        /usr/bin/perl* /usr/lib/*/perl* /usr/share/perl* /etc/cron* /etc/logrotate.d /var/cache/* /var/log/* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && printf 'routebook:x:10001:10001:Routebook:/tmp:/usr/sbin/nologin\n' >>/etc/passwd \
    && printf 'routebook:x:10001:\n' >>/etc/group


# Copied into an empty image, so that no lower layer still contains the removed files.
FROM scratch AS common
ARG VERSION
ARG REVISION=unknown
ARG CREATED
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
ENV PATH=/opt/routebook/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1
COPY --from=root / /
# Numeric, because Kubernetes' runAsNonRoot check cannot resolve names.
USER 10001:10001
WORKDIR /
STOPSIGNAL SIGTERM
ENTRYPOINT ["routebook"]


FROM common AS pipeline
LABEL org.opencontainers.image.title="Routebook pipeline" \
      org.opencontainers.image.description="Answers from the history of a RocketMQ fleet, with Spark"
# Everything that it writes outside the lake is temporary.
ENV JAVA_HOME=/opt/routebook/java HOME=/tmp
COPY --from=pipeline-packages /opt/routebook /opt/routebook
# A new volume takes the owner of the folder that it is mounted on; without the folder it would belong to root.
USER 0:0
RUN mkdir /lake && chown 10001:10001 /lake
USER 10001:10001
CMD ["pipeline", "doctor"]


# The last stage, so a build without --target builds the worker.
FROM common AS worker
LABEL org.opencontainers.image.title="Routebook" \
      org.opencontainers.image.description="The name service for RocketMQ fleets, scaled out on Redis"
COPY --from=worker-packages /opt/routebook /opt/routebook
# RocketMQ, HTTP, and health and metrics (on loopback unless ROUTEBOOK_ADMIN_HOST is set).
EXPOSE 9876 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["healthcheck"]
CMD ["serve"]
