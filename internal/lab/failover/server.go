package failover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// Server is a running real server.
type Server struct{ *part }

// serverOrder is what a server is told first: what it is called, and its TCP
// port.
type serverOrder struct {
	Name string
	Port uint16
}

// The lines that it is told then.
const (
	beSilent = "silent\n"
	beHeard  = "heard\n"
)

// StartServer starts a server and waits until it listens. The end of ctx kills
// it.
func StartServer(ctx context.Context, name string, port uint16, at child.Place) (*Server, error) {
	p, err := start(ctx, ServerRole, serverOrder{name, port}, at)
	if err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	return &Server{p}, nil
}

// Kill ends the server; its host goes on and refuses connections.
func (s *Server) Kill() { s.kill() }

// Silence has the server's host no longer answer on its port, neither clients
// nor checks, as one that is gone; Heard takes that back.
func (s *Server) Silence() error { return s.notify(beSilent) }

// Heard has it answer again.
func (s *Server) Heard() error { return s.notify(beHeard) }

func (s *Server) notify(line string) error {
	_, err := io.WriteString(s.in, line)
	said := ""
	if err == nil {
		said, err = s.out.ReadString('\n')
	}
	if said != ready {
		return fmt.Errorf("tell a real server %q: it says %q: %w", line, said, err)
	}
	return nil
}

// ServerMain is the role of a real server, until its input ends.
func ServerMain() int {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead failover:", err)
		return 1
	}
	return 0
}

func serve(input io.Reader, out io.Writer) error {
	in := bufio.NewReader(input)
	first, err := in.ReadBytes('\n')
	var do serverOrder
	if err == nil {
		err = json.Unmarshal(first, &do)
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	// The kernel has no filters for Multipath TCP, which Go listens for by default.
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", do.Port))
	if err != nil {
		return err
	}
	go answer(l, do.Name)
	for {
		if _, err := io.WriteString(out, ready); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = silence(l.(*net.TCPListener), line == beSilent)
		}
		if err != nil {
			return err
		}
	}
}

// nothing is a classic BPF program that keeps no byte of any packet.
var nothing = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// silence has the kernel drop whatever comes for the listener before TCP sees
// it, and so without a word; or no longer.
func silence(l *net.TCPListener, silent bool) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if silent {
			failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]})
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		}
	})
	return errors.Join(err, failed)
}

// answer answers every question by the server's name.
func answer(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead failover:", err)
			return
		}
		go func() {
			defer conn.Close()
			if conn.SetDeadline(time.Now().Add(Patience)) != nil {
				return
			}
			// A check connects, and asks nothing.
			if n, err := conn.Read(make([]byte, len(question))); n > 0 && err == nil {
				_, _ = io.WriteString(conn, name) // who asked tells if nothing came
			}
		}()
	}
}
