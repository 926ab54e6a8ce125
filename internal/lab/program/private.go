package program

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"fairlead/internal/child"
)

// Private is a program with a private /mnt. Everything there is gone when it ends.
type Private struct {
	// Args are the program's path and its arguments.
	Args []string
	// Files are the contents of its files in /mnt.
	Files map[string]string
	// Environment has further variables.
	Environment []string
	// Cgroup is the file of a cgroup of version 1 that the program joins; empty if it joins none.
	Cgroup string
	// Said gets what the program prints.
	Said *Output
}

// ownFiles joins a cgroup of version 1 if $1 names one, and runs a program with a
// private /mnt, into which it first copies the files that $2 names from the
// descriptors from 3 on.
const ownFiles = `if [ -n "$1" ]; then echo 0 > "$1"; fi
mount -t tmpfs none /mnt; fd=3
for name in $2; do cat /proc/self/fd/$fd > /mnt/$name; fd=$((fd+1)); done
shift 2; cd /mnt; exec "$@"`

// Start starts the program in the place.
func (p Private) Start(ctx context.Context, at child.Place) (*child.Process, error) {
	names := slices.Sorted(maps.Keys(p.Files))
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", ownFiles, "sh", p.Cgroup,
		strings.Join(names, " ")}, p.Args...)...)
	for _, name := range names {
		f, err := InMemory(p.Files[name])
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Env = append(os.Environ(), p.Environment...)
	cmd.Stdout, cmd.Stderr = p.Said, p.Said
	at.Contained = true // so that its children end with it
	return child.Start(ctx, cmd, at)
}

// The files of a certificate in a gateway's /mnt, and of Traefik's file provider.
const (
	ChainFile  = "chain.pem"
	KeyFile    = "key.pem"
	RoutesFile = "routes.yml"
)

// Question is a request to a gateway, with TLS if Secure is set.
type Question struct {
	At         netip.AddrPort
	Secure     *tls.Config
	Host, Path string
	Limit      time.Duration
}

// Ask sends the request from the namespace that do enters, and returns the status of the answer.
func (q Question) Ask(do func(func() error) error) (status int, err error) {
	var conn net.Conn
	err = do(func() (err error) {
		conn, err = net.DialTimeout("tcp", q.At.String(), q.Limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(q.Limit)); err != nil {
		return 0, err
	}
	var to io.ReadWriter = conn
	if q.Secure != nil {
		to = tls.Client(conn, q.Secure)
	}
	_, err = fmt.Fprintf(to, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", q.Path, q.Host)
	if err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(to), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
