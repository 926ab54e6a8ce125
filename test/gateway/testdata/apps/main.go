// Command apps stands in for the applications of examples/gateway: the name of the program
// says which one.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); {
	case name == "whoami":
		err = whoami(os.Args[1:])
	case name == "minio":
		err = minio()
	case strings.HasPrefix(name, "eclipse-mosquitto"):
		err = mosquitto()
	case name == "grpcbin":
		err = grpcbin()
	case strings.HasPrefix(name, "traefik-forward-auth"):
		err = http.ListenAndServe(":4181", http.HandlerFunc(forwardAuth))
	default:
		err = fmt.Errorf("no application is named %s", name)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// forwardAuth accepts requests with a session, and names its user.
func forwardAuth(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie("_forward_auth"); err == nil && c.Value == "ann" {
		w.Header().Set("X-Forwarded-User", c.Value)
		return
	}
	http.Redirect(w, r, "https://accounts.example.com/?for="+r.Header.Get("X-Forwarded-Host")+
		r.Header.Get("X-Forwarded-Uri"), http.StatusTemporaryRedirect)
}

// minio serves an API and a console at two ports.
func minio() error {
	go func() { _ = http.ListenAndServe(":9001", named("console")) }()
	return http.ListenAndServe(":9000", named("api"))
}

func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, name, r.URL.Path, r.Header.Get("X-Forwarded-Prefix"))
	})
}

// mosquitto accepts MQTT clients, and ignores what they send after CONNECT.
func mosquitto() error {
	l, err := net.Listen("tcp", ":1883")
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go acknowledge(c)
		}
	}
	return err
}

func acknowledge(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		kind, err := r.ReadByte()
		if err != nil {
			return
		}
		length, err := binary.ReadUvarint(r)
		if err != nil {
			return
		}
		if _, err := r.Discard(int(length)); err != nil {
			return
		}
		if kind == 0x10 {
			_, _ = c.Write([]byte{0x20, 2, 0, 0}) // the client may be gone
		}
	}
}
