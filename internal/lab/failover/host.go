package failover

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// The files of the daemon, on its host.
const (
	runDir   = "/run/fairlead"
	stateDir = "/run/fairlead/state"
	// Socket is the daemon's API socket.
	Socket = "/run/fairlead.sock"
)

// readyFD is the descriptor on which a daemon reports that it is ready.
const readyFD = 3

// HostMain replaces the process with a whole daemon on a host with private files. Its
// state is in memory, and its eBPF programs are pinned in a private bpffs. So a daemon
// of the real host is not affected, and everything is removed when the process ends,
// even if it is killed. The process must have a private mount namespace. HostMain
// returns the exit status if the daemon cannot be started.
func HostMain() int {
	if err := becomeDaemon(); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead failover:", err)
	}
	return 1
}

func becomeDaemon() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", "/run", "tmpfs", flags, "mode=0700"); err != nil {
		return fmt.Errorf("mount the daemon's files: %w", err)
	}
	// If this directory does not exist, the daemon mounts a bpffs among its files.
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", flags, "mode=0700"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount a bpffs for eBPF programs: %w", err)
	}
	if err := os.Setenv(child.Role, CommandRole); err != nil {
		return err
	}
	err := unix.Exec("/proc/self/exe", []string{"fairlead", "daemon", "--run-dir", runDir, "--state-dir", stateDir,
		"--socket", Socket,
		"--teardown", "--ready-fd", fmt.Sprint(readyFD)}, os.Environ())
	return fmt.Errorf("run the daemon: %w", err)
}
