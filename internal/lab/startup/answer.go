package startup

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"fairlead/internal/child"
)

// AnswerMain runs the role of the answerer and returns the exit status.
func AnswerMain() int { return child.ExitCode("startup", answer()) }

// answer listens, reports that by connecting to the parent, and answers until the
// parent closes that connection.
func answer() error {
	proto, port, _ := strings.Cut(os.Getenv(Listen), ":")
	answer := []byte(os.Getenv(Answer))
	if err := listen(proto, ":"+port, answer); err != nil {
		return err
	}
	control, err := net.Dial("unix", os.Getenv(Control))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, control)
	return err
}

func listen(proto, addr string, answer []byte) error {
	if proto == "udp" {
		conn, err := net.ListenPacket(proto, addr)
		if err == nil {
			go answerDatagrams(conn, answer)
		}
		return err
	}
	l, err := net.Listen(proto, addr)
	if err == nil {
		go answerConnections(l, answer)
	}
	return err
}

// answerDatagrams answers every datagram as long as the process runs.
func answerDatagrams(conn net.PacketConn, answer []byte) {
	question := make([]byte, 64)
	for {
		_, from, err := conn.ReadFrom(question)
		if err == nil {
			_, err = conn.WriteTo(answer, from)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead startup:", err)
		}
	}
}

// answerConnections answers every TCP connection as long as the process runs.
func answerConnections(l net.Listener, answer []byte) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead startup:", err)
			continue
		}
		go func() {
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 64)); err == nil {
				_, _ = conn.Write(answer) // the asker retries
			}
		}()
	}
}
