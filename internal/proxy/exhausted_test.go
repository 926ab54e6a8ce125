package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// exhaustedRole is a proxy of an unprivileged user whose pipes have as many pages as
// the user may have: each new pipe holds two pages.
const exhaustedRole = "proxy-exhausted"

// exhaustedUser has no other process.
const exhaustedUser = 61_733

func exhausted() int {
	err := syscall.Setresgid(exhaustedUser, exhaustedUser, exhaustedUser)
	if err == nil {
		err = syscall.Setresuid(exhaustedUser, exhaustedUser, exhaustedUser)
	}
	if err == nil {
		err = takePipePages()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "exhaust the pages of pipes:", err)
		return 1
	}
	return run(defaultLimits())
}

// takePipePages opens pipes until a new one holds two pages only. They stay open.
func takePipePages() error {
	for {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, 1<<20) // fails at last
		size, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			return err
		}
		if size <= 2*os.Getpagesize() {
			return nil
		}
	}
}

// exchangeBulk sends random bytes in both directions of a connection through the proxy
// at the same time. Both ends read slowly. It calls first before the target reads or
// sends anything; first sends a part of the client's bytes and returns how many. The
// test fails for each direction in which bytes are lost or changed.
func exchangeBulk(t *testing.T, p *Proxy, first func(c *net.TCPConn, b []byte) int) {
	t.Helper()
	const total = 16 << 20
	there, back := randomBytes(1, total), randomBytes(2, total)
	begin, got := make(chan struct{}), make(chan [32]byte, 1)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		<-begin
		got <- sendAndSum(c, back)
	})))
	c := dial(t, "127.0.0.1:8001")
	until(t, p, "the connection", func(s model.ProxyStats) bool { return s.Connections == 1 })
	sent := first(c, there)
	close(begin)
	if sendAndSum(c, there[sent:]) != sha256.Sum256(back) {
		t.Error("the client received other bytes than the target sent")
	}
	if <-got != sha256.Sum256(there) {
		t.Error("the target received other bytes than the client sent")
	}
	until(t, p, "all bytes to be counted", func(s model.ProxyStats) bool {
		return s.BytesIn == total && s.BytesOut == total
	})
}

func randomBytes(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// sendAndSum sends b, and meanwhile reads in small pieces until the other side has
// sent all. It returns the checksum of what it read.
func sendAndSum(c *net.TCPConn, b []byte) [32]byte {
	_ = c.SetReadBuffer(256 << 10)
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(c, bytes.NewReader(b))
		_ = c.CloseWrite()
	})
	hash := sha256.New()
	_, _ = io.CopyBuffer(hash, struct{ io.Reader }{c}, make([]byte, 3000))
	sending.Wait()
	return [32]byte(hash.Sum(nil))
}

// TestWithoutPipePagesNoByteIsLost: an unprivileged proxy whose user has no more pages
// for pipes forwards all bytes. At first it reads pieces that do not fill its buffer,
// until the target accepts only a part of one, which is more than two pages.
func TestWithoutPipePagesNoByteIsLost(t *testing.T) {
	p := newProxy(t, exhaustedRole)
	exchangeBulk(t, p, func(c *net.TCPConn, b []byte) (sent int) {
		for sent < len(b) {
			n, err := c.Write(b[sent : sent+bufferSize-1])
			if err != nil {
				t.Fatal(err)
			}
			sent += n
			if !forwarded(t, p, uint64(sent)) {
				return sent
			}
		}
		t.Fatal("the target accepts everything, although it reads nothing")
		return 0
	})
}

// forwarded reports whether the proxy has forwarded n bytes to the target. It returns
// false if the number stays the same while the proxy answers 1,000 requests.
func forwarded(t *testing.T, p *Proxy, n uint64) bool {
	t.Helper()
	for last, same := uint64(0), 0; same < 1000; same++ {
		now := stats(t, p).BytesIn
		if now == n {
			return true
		}
		if now != last {
			last, same = now, 0
		}
	}
	return false
}

// TestWithoutFilesForPipesNoByteIsLost: a proxy that may open no more files forwards
// all bytes of the connections that it has.
func TestWithoutFilesForPipesNoByteIsLost(t *testing.T) {
	p := newProxy(t, Role)
	exchangeBulk(t, p, func(*net.TCPConn, []byte) int {
		none := unix.Rlimit{}
		if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &none, nil); err != nil {
			t.Fatal(err)
		}
		return 0
	})
}
