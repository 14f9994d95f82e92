"""RocketMQ's own processes: name server, broker and tools, each with its own home folder, store and ports.

`store/keeper.py` ends them when the test process ends for whatever reason, as it does for the embedded store. The
output of a process is in its folder, and the end of it is part of the error when the process fails.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from routebook.store import keeper
from tests.support.ports import lasting_free_port
from tests.support.waiting import wait_until

START_SECONDS = 120.0
"""A broker takes 4 s on an idle machine, but eight brokers share two cores with everything else."""
STOP_SECONDS = 60.0
HOST = "127.0.0.1"

_CONFIGURATION = '<configuration><root level="WARN"/></configuration>'
_JVM = (
    # Many short-lived processes: they should start quickly and stay small.
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


def home_of(folder: Path) -> Path:
    """Writes the files that 4.9 requires in ROCKETMQ_HOME."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (folder / "conf" / f"logback_{name}.xml").write_text(_CONFIGURATION)
    return folder


def java_command(classpath: Path, *arguments: str, heap_mb: int = 128, options: Sequence[str] = ()) -> list[str]:
    return ["java", f"-Xms{min(heap_mb, 64)}m", f"-Xmx{heap_mb}m", *_JVM, *options, "-cp", f"{classpath}/*", *arguments]


class JavaProcess:
    """A process that `with` starts. It waits until the process is ready, and kills it at the end if it still runs."""

    main: ClassVar[str]
    heap_mb: ClassVar[int] = 256

    def __init__(self, classpath: Path, folder: Path, *, env: Mapping[str, str] | None = None) -> None:
        """`folder` is the home of the process. It is kept, so that the next start finds the stored data."""
        self.folder = home_of(folder)
        self._classpath = classpath
        self._env = dict(env or {})
        self._keeper: subprocess.Popen[bytes] | None = None
        self._log = folder / "log-0"

    def arguments(self) -> list[str]:
        return []

    def options(self) -> list[str]:
        return []

    def is_ready(self) -> bool:
        return "boot success" in self.log

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """Its output since the last start."""
        return self._log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def launch(self) -> None:
        """Starts without waiting, so that several can start in parallel. Call `wait_ready` for each afterwards."""
        assert not self.running, f"{self.folder.name} is already running"
        self._close()
        shutil.rmtree(self._run_folder, ignore_errors=True)
        self._run_folder.mkdir()
        self._log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        user_home = f"-Duser.home={self.folder}"
        # Settings of RocketMQ in the environment would change what peers send.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ", "NAMESRV"))}
        command = java_command(
            self._classpath, self.main, *self.arguments(), heap_mb=self.heap_mb, options=[user_home, *self.options()]
        )
        java = shutil.which(command[0])
        assert java
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(self._run_folder), "", java, *command[1:]],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**env, "ROCKETMQ_HOME": str(self.folder), **self._env},
                cwd=self.folder,
                start_new_session=True,
            )

    def wait_ready(self, within: float = START_SECONDS) -> None:
        def is_ready_or_ended() -> bool:
            return not self.running or self.is_ready()

        wait_until(is_ready_or_ended, f"{self.folder.name} starts", timeout_s=within, every_s=0.1)
        assert self.running, f"{self.folder.name} ended during its start: {self.log[-2000:]}"

    def start(self) -> None:
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """Stops it with SIGTERM, as `mqshutdown` does, and returns the exit code."""
        self.signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """Kills it with SIGKILL if it is running."""
        if self.running:
            wait_until(
                lambda: not self.running or (self._run_folder / keeper.PROCESS_ID_FILE).exists(),
                "the keeper has written the process id",
            )
            self.signal(signal.SIGKILL)
            self._wait()
        self._close()

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(int((self._run_folder / keeper.PROCESS_ID_FILE).read_text()), number)

    @property
    def _run_folder(self) -> Path:
        return self.folder / "run"

    def _wait(self) -> int:
        assert self._keeper
        status = self._keeper.wait(STOP_SECONDS)
        self._close()
        return status

    def _close(self) -> None:
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()


class ApacheNameServer(JavaProcess):
    """`mqnamesrv`."""

    main = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def __init__(
        self,
        classpath: Path,
        folder: Path,
        *,
        heap_mb: int = 256,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(classpath, folder)
        self.port = lasting_free_port()
        self._heap_mb = heap_mb
        lines = {"listenPort": self.port, "kvConfigPath": folder / "kvConfig.json", **(properties or {})}
        self._properties = folder / "namesrv.conf"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def options(self) -> list[str]:
        # Java uses the last one of repeated options.
        return [f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb}m"]

    def arguments(self) -> list[str]:
        return ["-c", str(self._properties)]


class ApacheController(JavaProcess):
    """`mqcontroller`, alone in its group: it elects the masters of broker groups in controller mode."""

    main = "org.apache.rocketmq.controller.ControllerStartup"

    def __init__(self, classpath: Path, folder: Path) -> None:
        super().__init__(classpath, folder)
        self.port = lasting_free_port()
        lines = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": folder / "store",
            "scanNotActiveBrokerInterval": 1000,
        }
        self._configuration = folder / "controller.conf"
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def arguments(self) -> list[str]:
        return ["-c", str(self._configuration)]


class Broker(JavaProcess):
    """`mqbroker`. By default it is a master that creates topics automatically."""

    main = "org.apache.rocketmq.broker.BrokerStartup"

    def __init__(
        self,
        classpath: Path,
        folder: Path,
        name_server: str,
        name: str = "broker-a",
        broker_id: int = 0,
        *,
        cluster: str = "DefaultCluster",
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(classpath, folder, env=env)
        self.name, self.broker_id, self.cluster = name, broker_id, cluster
        # It also listens on the port two below, and for its slaves on the one above.
        self.port = lasting_free_port((-2, 1))
        self._options = list(options)
        self._lines = {
            "brokerClusterName": cluster,
            "brokerName": name,
            "brokerId": broker_id,
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self.port,
            "namesrvAddr": name_server,
            "autoCreateTopicEnable": "true",
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 600_000,
            # Otherwise the broker refuses messages when the disk of the machine is nearly full.
            "diskMaxUsedSpaceRatio": 99,
            **(properties or {}),
        }
        self._write()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def configuration(self) -> Path:
        return self.folder / "broker.conf"

    def change(self, **properties: object) -> None:
        """Changes properties. They take effect at the next start."""
        self._lines |= properties
        self._write()

    def options(self) -> list[str]:
        return ["-XX:MaxDirectMemorySize=256m", *self._options]

    def arguments(self) -> list[str]:
        return ["-c", str(self.configuration)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            # The store has hundreds of megabytes, and pytest keeps the folders of three runs.
            shutil.rmtree(self.folder / "store", ignore_errors=True)

    def _write(self) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self._lines.items())
        self.configuration.write_text(text)


class SigningBroker(Broker):
    """A broker of 4.9 with a few lines of Java that make it sign."""

    main = str(Path(__file__).parent / "java" / "SigningBroker.java")


class BrokerContainer(JavaProcess):
    """`mqbrokercontainer` with brokers. Their own processes are not started."""

    main = "org.apache.rocketmq.container.BrokerContainerStartup"
    heap_mb = 384

    def __init__(self, classpath: Path, folder: Path, name_server: str, brokers: Sequence[Broker]) -> None:
        super().__init__(classpath, folder)
        self.port = lasting_free_port()
        paths = ":".join(str(broker.configuration) for broker in brokers)
        self._configuration = folder / "container.conf"
        self._configuration.write_text(
            f"listenPort={self.port}\nnamesrvAddr={name_server}\nbrokerConfigPaths={paths}\n"
            "brokerContainerIP=127.0.0.1\n"
        )

    def options(self) -> list[str]:
        return ["-XX:MaxDirectMemorySize=384m"]

    def arguments(self) -> list[str]:
        return ["-c", str(self._configuration)]


def mqadmin(classpath: Path, folder: Path, *arguments: str, within: float = START_SECONDS) -> str:
    """The output of the tool, including standard error. Its exit code is always 0."""
    home = home_of(folder)
    command = java_command(
        classpath, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments, options=[f"-Duser.home={home}"]
    )
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        timeout=within,
        check=False,
    )
    return re.sub(r"^OpenJDK.*\n", "", ended.stdout.decode(errors="replace"), flags=re.MULTILINE)
