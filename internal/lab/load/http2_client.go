package load

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/http2"
)

// The client's windows (RFC 9113, 6.9.2): the default of a connection, the greatest
// one, and how much of it is used before it is opened again.
const (
	defaultWindow  = 1<<16 - 1
	greatestWindow = 1<<31 - 1
	refill         = 1 << 30
)

// http2Client drives one connection with several concurrent requests. It compresses
// no header with the dynamic table, and asks the server to do the same, so that the
// head of a request is always the same and that of an answer is cheap to read.
type http2Client struct {
	j      *job
	t      *thread
	target netip.AddrPort
	out    *bufio.Writer
	in     *bufio.Reader
	framer *http2.Framer
	head   []byte
	next   uint32           // the next stream
	sent   map[uint32]int64 // when each open stream was opened
	used   int              // of the connection's window, in bytes
}

func newHTTP2Client(j *job, conn *tls.Conn, target netip.AddrPort) *http2Client {
	c := &http2Client{j: j, t: j.newThread(), target: target, out: bufio.NewWriterSize(conn, maxHead),
		in: bufio.NewReaderSize(conn, maxHead), head: http2Head(), next: 1, sent: map[uint32]int64{}}
	c.framer = http2.NewFramer(c.out, c.in)
	c.framer.SetReuseFrames()
	return c
}

// http2Head returns the compressed head of a request (RFC 7541): GET, https and / are
// in the static table, the authority is a literal.
func http2Head() []byte {
	const get, https, root, authority = 0x82, 0x87, 0x84, 0x01
	return append([]byte{get, https, root, authority, byte(len(Host))}, Host...)
}

// begin opens the connection and makes one request.
func (c *http2Client) begin() error {
	if _, err := c.out.WriteString(http2.ClientPreface); err != nil {
		return failed("send to", c.target, err)
	}
	err := errors.Join(
		c.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		c.framer.WriteWindowUpdate(0, greatestWindow-defaultWindow),
		c.open(), c.out.Flush())
	if err != nil {
		return failed("send to", c.target, err)
	}
	for len(c.sent) > 0 {
		if err := c.frame(); err != nil {
			return err
		}
	}
	return nil
}

// run keeps the spec's number of requests open until the run is quiet, and waits for
// their answers.
func (c *http2Client) run() error {
	for range c.j.spec.Multiplex {
		if err := c.open(); err != nil {
			return failed("send to", c.target, err)
		}
	}
	for len(c.sent) > 0 {
		if c.in.Buffered() == 0 {
			if err := c.out.Flush(); err != nil {
				return failed("send to", c.target, err)
			}
		}
		answers := len(c.sent)
		if err := c.frame(); err != nil {
			c.t.errors.Add(1)
			return err
		}
		for range answers - len(c.sent) {
			if c.j.quiet.Load() {
				break
			}
			if err := c.open(); err != nil {
				return failed("send to", c.target, err)
			}
		}
	}
	return nil
}

// open sends a request.
func (c *http2Client) open() error {
	c.sent[c.next] = c.j.clock.now()
	c.next += 2
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next - 2, BlockFragment: c.head,
		EndStream: true, EndHeaders: true})
}

// frame reads one frame.
func (c *http2Client) frame() error {
	f, err := c.framer.ReadFrame()
	if err != nil {
		return failed("receive from", c.target, err)
	}
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if err := http2Status(f.HeaderBlockFragment()); err != nil {
			return err
		}
		return c.part(f.StreamID, f.StreamEnded())
	case *http2.DataFrame:
		c.t.receivedBytes.Add(uint64(len(f.Data())))
		if err := c.spend(int(f.Length)); err != nil {
			return failed("send to", c.target, err)
		}
		return c.part(f.StreamID, f.StreamEnded())
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("receive from %s: GOAWAY (%s)", c.target, f.ErrCode)
	case *http2.RSTStreamFrame:
		return fmt.Errorf("receive from %s: the server has reset stream %d (%s)", c.target, f.StreamID, f.ErrCode)
	}
	return nil
}

// spend opens the connection's window again if much of it has been used.
func (c *http2Client) spend(n int) error {
	if c.used += n; c.used < refill {
		return nil
	}
	n, c.used = c.used, 0
	return c.framer.WriteWindowUpdate(0, uint32(n))
}

// part handles a part of an answer; last is true for its end.
func (c *http2Client) part(stream uint32, last bool) error {
	sent, open := c.sent[stream]
	if !open {
		return fmt.Errorf("receive from %s: an answer on stream %d, which is not open", c.target, stream)
	}
	if last {
		delete(c.sent, stream)
		c.j.record(c.t, sent, sent, c.j.clock.now())
	}
	return nil
}

// http2Status returns an error unless the compressed head of an answer begins with
// the status 200, which is in the static table, perhaps after the update of the
// dynamic table's size to 0 (RFC 7541, 6.3).
func http2Status(head []byte) error {
	const ok, noTable = 0x88, 0x20
	for len(head) > 0 && head[0] == noTable {
		head = head[1:]
	}
	if len(head) > 0 && head[0] == ok {
		return nil
	}
	return fmt.Errorf("want the answer 200, got a head that begins with %x", head[:min(len(head), 8)])
}
