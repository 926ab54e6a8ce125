// Package startup finds out when a container answers: a program that answers
// on one port in the container, and one that asks it, on the side of a client.
// It starts no container and reads no clock; who does both is told.
//
// # Theory of operation
//
//	parent ──stdin, stdout── asker          answerer ──unix socket── parent
//	                           ║    traffic     ║
//	                           ╚════════════════╝
//
// The answerer listens and then connects to its parent, so that nobody asks
// before there is somebody to answer: an earlier datagram would leave a flow
// in conntrack or an unanswered ARP request behind, which delay what follows
// by more than a container's start takes. From then on the asker asks anew,
// from another port, until it is answered. The answerer ends with its
// connection.
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

// The environment variables of an answerer: what it listens on, such as
// tcp:20001, what it answers, and the unix socket of its parent.
const (
	Listen  = "FAIRLEAD_STARTUP_LISTEN"
	Answer  = "FAIRLEAD_STARTUP_ANSWER"
	Control = "FAIRLEAD_STARTUP_CONTROL"
)

const (
	// patience is how long one question waits for an answer.
	patience = 20 * time.Millisecond
	// pause lets a port that refuses be published.
	pause = time.Millisecond
	// longest is how long a question may be asked again.
	longest = 10 * time.Second
)

// Question returns the line that has an asker ask until the answer is that
// one. It replies with a line, which is Answered or says what came instead.
func Question(proto, addr, answer string) string {
	return fmt.Sprintf("%s %s %s\n", proto, addr, answer)
}

// Answered is the asker's reply to a question that was answered.
const Answered = "answered\n"

// AskMain is the role of the asker, until its input ends.
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

// askUntil asks until the answer is the wanted one, and returns the reply.
func askUntil(proto, addr, want string) string {
	var got string
	var err error
	for deadline := time.Now().Add(longest); time.Now().Before(deadline); {
		if got, err = ask(proto, addr); err == nil && got == want {
			return Answered
		}
		time.Sleep(pause)
	}
	return fmt.Sprintf("%s/%s answers %q, %v\n", addr, proto, got, err)
}

// ask asks once.
func ask(proto, addr string) (string, error) {
	conn, err := net.DialTimeout(proto, addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}
