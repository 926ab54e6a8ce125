package failover

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// The files of a daemon, on its host.
const (
	runDir   = "/run/fairlead"
	stateDir = "/run/fairlead/state"
	// Socket is what it listens on.
	Socket = "/run/fairlead.sock"
)

// readyFD is the descriptor on which a daemon says that it is ready.
const readyFD = 3

// HostMain is the role of a whole daemon on a host whose files nobody else
// sees: what it keeps is in memory, and its eBPF programs are pinned in a bpffs
// of its own, so that a daemon of the real host does not notice, and all is
// gone with the process however that ends. The mount namespace must be its own.
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
	// Where there is no such folder, the daemon mounts one among its files.
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", flags, "mode=0700"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount a place for eBPF programs: %w", err)
	}
	if err := os.Setenv(child.Role, CommandRole); err != nil {
		return err
	}
	err := unix.Exec("/proc/self/exe", []string{"fairlead", "daemon", "--run-dir", runDir, "--state-dir", stateDir, "--socket", Socket,
		"--teardown", "--ready-fd", fmt.Sprint(readyFD)}, os.Environ())
	return fmt.Errorf("become the daemon: %w", err)
}
