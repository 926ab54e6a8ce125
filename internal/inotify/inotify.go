// Package inotify parses the events of the kernel's inotify (inotify(7)). It
// adds no watches itself.
package inotify

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Event is one event of a watched directory.
type Event struct {
	// Watch is the watch descriptor that inotify_add_watch returned, or -1 if
	// the kernel dropped events (IN_Q_OVERFLOW).
	Watch int
	// Mask is a set of IN_* bits, e.g. IN_CREATE.
	Mask uint32
	// Name is the name of the file. It is empty for the directory itself.
	Name string
}

// Events returns the events of one read of an inotify file descriptor. It
// ignores an incomplete event at the end: a read returns whole events only.
func Events(read []byte) (all []Event) {
	for len(read) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(read[12:]))
		if end > len(read) {
			break
		}
		name, _, _ := bytes.Cut(read[unix.SizeofInotifyEvent:end], []byte{0}) // the kernel pads it
		all = append(all, Event{
			Watch: int(int32(binary.NativeEndian.Uint32(read))),
			Mask:  binary.NativeEndian.Uint32(read[4:]),
			Name:  string(name),
		})
		read = read[end:]
	}
	return all
}
