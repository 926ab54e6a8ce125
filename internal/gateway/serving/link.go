package serving

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

const (
	// mostFrame limits the memory that a frame takes, in bytes.
	mostFrame = 256 << 20
	// rightsBatch is how many descriptors go with one message; the kernel allows 253
	// (SCM_MAX_FD).
	rightsBatch = 200
	// mostDescriptors limits the descriptors of one frame.
	mostDescriptors = 4096
)

// link is one end of a control socket. Only one goroutine may write and one may read.
type link struct {
	conn *net.UnixConn
	// received are the descriptors that came with what was read.
	received []int
	// sender is who has written the last bytes, if the socket has SO_PASSCRED.
	sender *unix.Ucred
}

// send writes a frame with copies of the descriptors.
func (l *link) send(message any, descriptors []int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	if len(text) > mostFrame {
		return fmt.Errorf("send message: it has %d bytes, at most %d are possible", len(text), mostFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...)
	for len(descriptors) > 0 {
		n := min(len(descriptors), rightsBatch)
		if _, _, err := l.conn.WriteMsgUnix(frame[:1], unix.UnixRights(descriptors[:n]...), nil); err != nil {
			return fmt.Errorf("send descriptors: %w", err)
		}
		frame, descriptors = frame[1:], descriptors[n:]
	}
	if _, err := l.conn.Write(frame); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// receive reads a frame, and returns the descriptors that came with it. It returns io.EOF
// if the other end has closed the socket.
func (l *link) receive(message any) (descriptors []int, err error) {
	defer func() {
		if descriptors, l.received = l.received, nil; err != nil {
			closeAll(descriptors)
			descriptors = nil
		}
	}()
	var head [4]byte
	if _, err := io.ReadFull(l, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > mostFrame {
		return nil, fmt.Errorf("receive message: it has %d bytes, at most %d are accepted", size, mostFrame)
	}
	// The memory grows with what arrives, not with what the length promises.
	text, err := io.ReadAll(io.LimitReader(l, int64(size)))
	if err != nil {
		return nil, err
	}
	if len(text) < int(size) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(text, message); err != nil {
		return nil, fmt.Errorf("receive message: %w", err)
	}
	return nil, nil
}

// Read implements io.Reader, and gathers descriptors.
func (l *link) Read(b []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(253*4)+unix.CmsgSpace(unix.SizeofUcred))
	n, c, flags, _, err := l.conn.ReadMsgUnix(b, control)
	if c > 0 {
		if failed := l.take(control[:c]); err == nil {
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
func (l *link) take(control []byte) error {
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
			l.received = append(l.received, descriptors...)
		case unix.SCM_CREDENTIALS:
			if l.sender, err = unix.ParseUnixCredentials(&m); err != nil {
				return fmt.Errorf("receive credentials: %w", err)
			}
		}
	}
	if len(l.received) > mostDescriptors {
		return fmt.Errorf("receive descriptors: more than %d came with one message", mostDescriptors)
	}
	return nil
}

func closeAll(descriptors []int) {
	for _, fd := range descriptors {
		_ = unix.Close(fd)
	}
}

// peerOf returns the credentials of the process at the other end (SO_PEERCRED). If the
// other end was accepted by a listener, these are of the process that began to listen.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("read the credentials of the peer: %w", err)
	}
	return who, nil
}
