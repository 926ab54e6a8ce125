// Package authority runs an ACME authority, pebble, in a process of its own, so that tests have one
// in a network namespace.
package authority

import (
	"bufio"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/gateway/acme/acmetest"
	"fairlead/test/process"
)

// Role is the role of an authority's process; Main is its main function.
const Role = "acme-authority"

// Order says how the authority works.
type Order struct {
	// Address is where the authority listens. Its certificate is valid for example.com, and for
	// 127.0.0.1 and ::1.
	Address string
	// DNS is the address of the DNS server that the authority asks. If it is empty, all names have
	// the address Names, by default 127.0.0.1.
	DNS, Names string
	// Validity is the life of certificates in seconds. 0 means a long one.
	Validity uint64
}

// The ports where the authority validates names.
const httpPort, tlsPort = 80, 443

// Main runs an authority until the standard input ends. It answers each line on the standard input
// with the number of accepted orders.
func Main() int { return process.Main(run)() }

// identity is what clients must know of the authority.
type identity struct{ URL, Roots, Root string }

func run(do Order) error {
	if do.DNS == "" {
		at, stop, err := acmetest.Names(cmp.Or(do.Names, "127.0.0.1"))
		if err != nil {
			return err
		}
		defer stop()
		do.DNS = at
	}
	l, err := net.Listen("tcp", do.Address)
	if err != nil {
		return err
	}
	a, err := acmetest.Start(acmetest.Options{Listener: l, HTTPPort: httpPort, TLSPort: tlsPort, DNS: do.DNS,
		Validity: do.Validity})
	if err != nil {
		return err
	}
	defer a.Close()
	process.Ready()
	if err := json.NewEncoder(os.Stdout).Encode(identity{a.URL, a.Roots, a.Root}); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() != "" { // the order may end with a newline
			fmt.Println(a.Orders())
		}
	}
	return in.Err()
}

// Authority is a running authority.
type Authority struct {
	// URL is that of its directory.
	URL string
	// Roots is a file with the certificate that its server is verified with.
	Roots string
	// Root has the certificate that the issued certificates are verified with.
	Root    *x509.CertPool
	t       testing.TB
	process *process.Process
}

// Start starts an authority, which ends with the test.
func Start(t testing.TB, do Order, at child.Place) *Authority {
	t.Helper()
	a := &Authority{Root: x509.NewCertPool(), Roots: filepath.Join(t.TempDir(), "authority.pem"), t: t,
		process: process.Start(t, Role, do, at)}
	line, err := a.process.Out.ReadString('\n')
	var is identity
	if err == nil {
		err = json.Unmarshal([]byte(line), &is)
	}
	if err == nil {
		err = os.WriteFile(a.Roots, []byte(is.Roots), 0o644)
	}
	if err != nil {
		t.Fatalf("start the authority: %v", err)
	}
	a.URL = is.URL
	a.Root.AppendCertsFromPEM([]byte(is.Root))
	return a
}

// Orders returns how many orders the authority has accepted.
func (a *Authority) Orders() (n int) {
	a.t.Helper()
	_, err := fmt.Fprintln(a.process.In, "orders")
	if err == nil {
		_, err = fmt.Fscanln(a.process.Out, &n)
	}
	if err != nil {
		a.t.Fatalf("ask the authority for its orders: %v", err)
	}
	return n
}
