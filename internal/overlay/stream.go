package overlay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"time"
)

// stream sends length bytes over TCP and receives as many, within the time limit.
// The error says how many bytes were transferred.
func (t Target) stream(ctx context.Context, length int, limit time.Duration) error {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.Local, 0)), Timeout: limit}
	var conn net.Conn
	if err := t.enter(func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(t.Peer, Port).String())
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	data := make([]byte, length)
	fill(data, 0)
	if err := binary.Write(conn, binary.BigEndian, uint32(length)); err != nil {
		return err
	}
	if n, err := conn.Write(data); err != nil {
		return fmt.Errorf("%d of %d bytes sent: %w", n, length, err)
	}
	var sum uint32
	if err := binary.Read(conn, binary.BigEndian, &sum); err != nil {
		return fmt.Errorf("%d bytes sent, but no answer received: %w", length, err)
	}
	if sum != crc32.ChecksumIEEE(data) {
		return errCorrupted
	}
	back := make([]byte, length)
	if n, err := io.ReadFull(conn, back); err != nil {
		return fmt.Errorf("%d of %d bytes returned: %w", n, length, err)
	}
	if !bytes.Equal(back, data) {
		return errCorrupted
	}
	return nil
}
