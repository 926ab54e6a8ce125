package serving

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

const (
	// mostFrame limits the memory that a frame takes, in bytes.
	mostFrame = 256 << 20
	// mostDescriptors limits the descriptors of one frame.
	mostDescriptors = 4096
)

// link is one end of a control socket. Only one goroutine may write and one may read.
type link struct {
	conn *net.UnixConn
	// with is what came with what was read.
	with unixsock.Ancillary
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
		n := min(len(descriptors), unixsock.Batch)
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
		if descriptors, l.with.Descriptors = l.with.Descriptors, nil; err != nil {
			unixsock.CloseAll(descriptors)
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
	n, err := l.with.Read(l.conn, b)
	if err == nil && len(l.with.Descriptors) > mostDescriptors {
		err = fmt.Errorf("receive descriptors: more than %d came with one message", mostDescriptors)
	}
	return n, err
}
