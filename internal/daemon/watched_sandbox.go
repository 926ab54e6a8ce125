package daemon

import (
	"context"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// watchedSandbox is a running sandbox that is attached.
type watchedSandbox struct {
	ref, path string
	// namespace is the result of netns.Identify when the sandbox was attached.
	namespace string
	// id is the host's ID of the namespace (nsid).
	id int
	// dev and ino identify the file at path.
	dev, ino uint64
	// forget ends the watch of the sandbox's process.
	forget context.CancelFunc
}

// moved reports whether another file is at the path of the sandbox now. It is fast,
// but does not detect another namespace that got the same inode number; the kernel
// reports the end of the first one.
func (b *watchedSandbox) moved() bool {
	var st unix.Stat_t
	return unix.Stat(b.path, &st) != nil || st.Dev != b.dev || st.Ino != b.ino
}

// gone reports whether the sandbox that was attached is no longer at its path.
func (b *watchedSandbox) gone() bool {
	now, err := netns.Identify(b.path)
	return err != nil || now != b.namespace
}
