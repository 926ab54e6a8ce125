// Package unixsock reads what comes over unix sockets besides bytes: descriptors, and who is at the other end.
// It does not know the messages.
package unixsock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Batch is how many descriptors go with one message; the kernel allows 253 (SCM_MAX_FD).
const Batch = 200

// Ancillary gathers what has come besides the bytes of a stream.
type Ancillary struct {
	Descriptors []int
	// Sender is who has written the last bytes, if the socket has SO_PASSCRED.
	Sender *unix.Ucred
}

// Read reads from the socket. After an error, too, the caller owns the descriptors that have come.
func (a *Ancillary) Read(from *net.UnixConn, b []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(253*4)+unix.CmsgSpace(unix.SizeofUcred))
	n, c, flags, _, err := from.ReadMsgUnix(b, control)
	if c > 0 {
		if failed := a.take(control[:c]); err == nil {
			err = failed
		}
	}
	switch {
	case err != nil:
		return n, err
	case flags&unix.MSG_CTRUNC != 0:
		return n, errors.New("receive descriptors: too many open files: raise the limit on open files (ulimit -n)")
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// take parses control messages.
func (a *Ancillary) take(control []byte) error {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return fmt.Errorf("receive descriptors: %w", err)
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			descriptors, err := unix.ParseUnixRights(&m)
			if err != nil {
				return fmt.Errorf("receive descriptors: %w", err)
			}
			a.Descriptors = append(a.Descriptors, descriptors...)
		case unix.SCM_CREDENTIALS:
			if a.Sender, err = unix.ParseUnixCredentials(&m); err != nil {
				return fmt.Errorf("receive credentials: %w", err)
			}
		}
	}
	return nil
}

// CloseAll closes descriptors.
func CloseAll(descriptors []int) {
	for _, fd := range descriptors {
		_ = unix.Close(fd)
	}
}

// Process is a process at the other end of a socket.
type Process struct{ unix.Ucred }

// Trusted reports whether the process runs as root or as this process's user.
func (p Process) Trusted() bool { return p.Uid == 0 || int(p.Uid) == os.Geteuid() }

// PeerOf returns the process at the other end (SO_PEERCRED). If the other end was accepted by a listener, that is the
// process that began to listen.
func PeerOf(conn syscall.Conn) (Process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var who *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(failed, err); err != nil {
		return Process{}, fmt.Errorf("read the credentials of the peer: %w", err)
	}
	return Process{*who}, nil
}
