package agent

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"fairlead/internal/lab/certificate"

	"github.com/xtaci/smux"

	"golang.org/x/sys/unix"
)

// linkTimeout is how long the other machine may be silent, although the kernel asks
// it every keepaliveInterval, or may leave data unacknowledged.
const (
	linkTimeout       = 15 * time.Second
	keepaliveInterval = 3 * time.Second
)

// alpn names the protocol in the TLS handshake.
const alpn = "fairlead-lab"

// newCertificate returns the certificate of an agent. Its fingerprint identifies it; nothing depends on
// its name or its dates.
func newCertificate() (tls.Certificate, error) {
	pair, err := certificate.New("agent.invalid")
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Chain, pair.Key)
}

// serverTLS returns the agent's settings.
func serverTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{alpn},
		SessionTicketsDisabled: true}
}

// clientTLS returns the laboratory's settings: the certificate is verified by the
// fingerprint in the token, and by nothing else, because no authority signs it.
func clientTLS(t Token) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 {
				return errOtherAgent
			}
			return t.check(s.PeerCertificates[0].Raw)
		}}
}

// limitSilence makes the kernel close the connection if the other machine does not
// answer, whatever this process does.
func limitSilence(conn *net.TCPConn) error {
	if err := conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepaliveInterval,
		Interval: keepaliveInterval, Count: int(linkTimeout / keepaliveInterval)}); err != nil {
		return fmt.Errorf("enable keepalive: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("set TCP_USER_TIMEOUT", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP,
			unix.TCP_USER_TIMEOUT, int(linkTimeout.Milliseconds())))
	})
	return errors.Join(err, failed)
}

// streams returns the settings of the streams on a connection. The kernel notices when
// the other machine is lost, so they need no messages for that.
func streams() *smux.Config {
	c := smux.DefaultConfig()
	c.Version, c.KeepAliveDisabled = 2, true
	return c
}

// maxStreams limits the calls and generators at the same time.
const maxStreams = 256
