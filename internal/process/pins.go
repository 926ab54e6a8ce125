package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairlead/internal/kernel/ebpf/datapath"

	"golang.org/x/sys/unix"
)

// Pins returns the directory in which a daemon with those options pins its eBPF
// programs, for commands that read them.
func Pins(opt Options) string {
	if isBPF(filepath.Dir(datapath.BPFDir)) {
		return datapath.BPFDir
	}
	return filepath.Join(opt.Run, "bpf", "pins")
}

// pinDir returns a directory in a bpffs for eBPF programs, which survive the end of
// the daemon. It uses the host's bpffs, or mounts one for the daemon. remove removes
// the directory if it is empty, and unmounts the bpffs that was mounted here.
func pinDir(run string) (dir string, remove func() error, err error) {
	if isBPF(filepath.Dir(datapath.BPFDir)) {
		return datapath.BPFDir, func() error {
			_ = os.Remove(datapath.BPFDir) // fails while a daemon of any namespace has programs in it
			return nil
		}, nil
	}
	own := filepath.Join(run, "bpf")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return "", nil, fmt.Errorf("create a directory for eBPF programs: %w", err)
	}
	if !isBPF(own) {
		if err := unix.Mount("bpf", own, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			return "", nil, fmt.Errorf("mount a bpffs on %s: %w: mount one on /sys/fs/bpf with `mount -t bpf bpf "+
				"/sys/fs/bpf`", own, err)
		}
	}
	pins := filepath.Join(own, "pins")
	return pins, func() error {
		// If it has programs, the next daemon needs it.
		if err := os.Remove(pins); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err := unix.Unmount(own, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", own, err)
		}
		if err := os.Remove(own); err != nil {
			return fmt.Errorf("remove the directory for eBPF programs: %w", err)
		}
		return nil
	}, nil
}

func isBPF(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}
