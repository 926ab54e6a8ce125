// Package inotify reads what the kernel's inotify tells (inotify(7)). It
// watches nothing itself.
package inotify

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Event is something that has happened in a watched directory.
type Event struct {
	// Watch is the number that inotify_add_watch has returned, -1 where events
	// were lost (IN_Q_OVERFLOW).
	Watch int
	// Mask is of IN_CREATE and so on.
	Mask uint32
	// Name is that of the file; empty for the directory itself.
	Name string
}

// Events are those of one read. What is not whole is left out: a read never
// ends within an event.
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
