package watched

import (
	"context"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// Sandbox is a running sandbox that is attached.
type Sandbox struct {
	Ref, Path string
	// Namespace is the result of netns.Identify when the sandbox was attached.
	Namespace string
	// ID is the host's ID of the namespace (nsid).
	ID int
	// dev and ino identify the file at path.
	dev, ino uint64
	// forget ends the watch of the sandbox's process.
	forget context.CancelFunc
}

// Moved reports whether another file is at the path of the sandbox now. It is fast,
// but does not detect another namespace that got the same inode number; the kernel
// reports the end of the first one.
func (b *Sandbox) Moved() bool {
	var st unix.Stat_t
	return unix.Stat(b.Path, &st) != nil || st.Dev != b.dev || st.Ino != b.ino
}

// gone reports whether the sandbox that was attached is no longer at its path.
func (b *Sandbox) gone() bool {
	now, err := netns.Identify(b.Path)
	return err != nil || now != b.Namespace
}
