// Command program is what the tests of the Docker driver run, in containers and
// beside them. It answers who asks with the asker's address, and asks.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: program serve NETWORK:PORT...   answer until told to end; after:FIFO
                                       waits until somebody has written there
       program ask NETWORK ADDRESS        print the answer`

// patience bounds a question.
const patience = 5 * time.Second

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("%s", usage))
	}
	switch os.Args[1] {
	case "serve":
		for _, word := range os.Args[2:] {
			network, port, _ := strings.Cut(word, ":")
			if network != "after" {
				port = ":" + port
			}
			if err := serve(network, port); err != nil {
				fail(err)
			}
		}
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, os.Interrupt)
		<-end
	case "ask":
		answer, err := ask(os.Args[2], os.Args[3])
		if err != nil {
			fail(err)
		}
		fmt.Println(answer)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "program:", err)
	os.Exit(1)
}

// serve answers on a port in the background.
func serve(network, addr string) error {
	if network == "after" {
		_, err := os.ReadFile(addr)
		return err
	}
	if network == "udp" {
		conn, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		go answerDatagrams(conn)
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go answerConnections(listener)
	return nil
}

func answerDatagrams(conn net.PacketConn) {
	for buf := make([]byte, 64); ; {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			fail(err)
		}
		_, _ = conn.WriteTo([]byte(host(from)), from)
	}
}

func answerConnections(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		_, _ = io.WriteString(conn, host(conn.RemoteAddr()))
		conn.Close()
	}
}

// host is the address of an asker.
func host(a net.Addr) string {
	h, _, _ := net.SplitHostPort(a.String())
	return h
}

// ask returns what somebody answers, who may yet be about to listen.
func ask(network, addr string) (string, error) {
	conn, err := net.DialTimeout(network, addr, patience)
	for end := time.Now().Add(patience); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(end); {
		conn, err = net.DialTimeout(network, addr, patience)
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if network == "udp" {
		if _, err := io.WriteString(conn, "?"); err != nil {
			return "", err
		}
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}
