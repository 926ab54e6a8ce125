package health

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"fairlead/internal/child"
)

// The roles of this binary: servers for benchmarks, whose time is not counted.
func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{
		"accept": func() int { return serve(func(c net.Conn) { c.Close() }) },
		"http":   func() int { return serve(answerHTTP) },
	})
	os.Exit(m.Run())
}

// serve prints the address of its listener, and serves until its input ends.
func serve(handle func(net.Conn)) int {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func answerHTTP(c net.Conn) {
	go func() {
		defer c.Close()
		from := bufio.NewReader(c)
		for line := "-"; line != "\r\n" && line != ""; {
			line, _ = from.ReadString('\n')
		}
		_,
			_ = io.WriteString(c,
			"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
	}()
}

// startServer starts a process that serves, and returns its port.
func startServer(t testing.TB, role string) uint16 {
	t.Helper()
	cmd := child.Self(role)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	})
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	return port
}
