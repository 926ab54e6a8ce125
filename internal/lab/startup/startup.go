// Package startup measures when a container answers. It has a program that answers
// on a port in the container, and one that asks it from the client. It starts no
// container and reads no clock: the caller does both.
//
// # Theory of operation
//
//	parent ──stdin, stdout── asker          answerer ──unix socket── parent
//	                           ║    traffic     ║
//	                           ╚════════════════╝
//
// The answerer listens and then connects to its parent. So the parent makes the asker
// start only when there is a listener. An earlier datagram would leave a conntrack
// flow or an unanswered ARP request behind, whose delay is longer than a container's
// start. The asker then repeats its question, each time from a new port, until it gets
// the answer. The answerer ends when its connection to the parent is closed.
package startup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// The roles of the two programs.
const (
	AnswerRole = "startup-answer"
	AskRole    = "startup-ask"
)

// The environment variables of an answerer: what it listens on, such as tcp:20001,
// its answer, and the path of the parent's unix socket.
const (
	Listen  = "FAIRLEAD_STARTUP_LISTEN"
	Answer  = "FAIRLEAD_STARTUP_ANSWER"
	Control = "FAIRLEAD_STARTUP_CONTROL"
)

const (
	// answerTimeout is how long the asker waits for the answer to one question.
	answerTimeout = 20 * time.Millisecond
	// pause is the time between two questions, during which the port may be
	// published.
	pause = time.Millisecond
	// longest is how long a question is repeated.
	longest = 10 * time.Second
)

// Question returns the line that makes an asker ask until it gets the given
// answer. The asker replies with one line: Answered, or a description of what it
// received instead.
func Question(proto, addr, answer string) string {
	return fmt.Sprintf("%s %s %s\n", proto, addr, answer)
}

// Answered is the asker's reply after the right answer.
const Answered = "answered\n"

// AskMain runs the role of the asker until its input ends, and returns the exit
// status.
func AskMain() int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return 0
		}
		q := strings.Fields(line)
		if err == nil && len(q) != 3 {
			err = fmt.Errorf("want PROTO ADDRESS ANSWER, not %q", line)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead startup:", err)
			return 1
		}
		fmt.Print(askUntil(q[0], q[1], q[2]))
	}
}

// askUntil asks until the answer is the wanted one, and returns the reply line.
func askUntil(proto, addr, want string) string {
	var got string
	var err error
	for deadline := time.Now().Add(longest); time.Now().Before(deadline); {
		if got, err = ask(proto, addr); err == nil && got == want {
			return Answered
		}
		time.Sleep(pause)
	}
	return fmt.Sprintf("%s/%s: got answer %q, error %v\n", addr, proto, got, err)
}

// ask sends one question.
func ask(proto, addr string) (string, error) {
	conn, err := net.DialTimeout(proto, addr, answerTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}
