package tlsconfig

import (
	"cmp"
	"crypto/tls"
	"slices"
)

// AtLeast reports whether the options a of a server accept no connection that the options b refuse.
func AtLeast(a, b *tls.Config) bool {
	return a == b || authAtLeast(a, b) && a.MinVersion >= b.MinVersion &&
		(b.MaxVersion == 0 || a.MaxVersion != 0 && a.MaxVersion <= b.MaxVersion) &&
		(a.MinVersion >= tls.VersionTLS13 || within(a.CipherSuites, b.CipherSuites)) &&
		(len(b.CurvePreferences) == 0 ||
			len(a.CurvePreferences) > 0 && within(a.CurvePreferences, b.CurvePreferences)) &&
		within(a.NextProtos, b.NextProtos) && (a.SessionTicketsDisabled || !b.SessionTicketsDisabled)
}

// Holds reports whether the options of a server accept a connection that began under others, as far as its state
// shows. It does not verify the client's certificate again.
func Holds(c *tls.Config, s *tls.ConnectionState) bool {
	switch {
	case s.Version < c.MinVersion, c.MaxVersion != 0 && s.Version > c.MaxVersion,
		s.Version < tls.VersionTLS13 && !slices.Contains(c.CipherSuites, s.CipherSuite):
		return false
	case len(s.PeerCertificates) == 0:
		return c.ClientAuth != tls.RequireAnyClientCert && c.ClientAuth != tls.RequireAndVerifyClientCert
	}
	return c.ClientAuth < tls.VerifyClientCertIfGiven || len(s.VerifiedChains) > 0
}

func within[T comparable](a, b []T) bool {
	return !slices.ContainsFunc(a, func(v T) bool { return !slices.Contains(b, v) })
}

// authAtLeast compares which certificates of clients are needed.
func authAtLeast(a, b *tls.Config) bool {
	switch b.ClientAuth {
	case tls.RequireAnyClientCert:
		return a.ClientAuth == tls.RequireAnyClientCert || a.ClientAuth == tls.RequireAndVerifyClientCert
	case tls.VerifyClientCertIfGiven, tls.RequireAndVerifyClientCert:
		return a.ClientAuth >= b.ClientAuth && a.ClientCAs.Equal(b.ClientCAs)
	}
	return a.ClientAuth >= b.ClientAuth
}

// Compare orders options, the strictest first. If AtLeast(a, b), a is not after b, unless AtLeast(b, a) too.
func Compare(a, b *tls.Config) int {
	return cmp.Or(cmp.Compare(b.ClientAuth, a.ClientAuth), cmp.Compare(b.MinVersion, a.MinVersion),
		cmp.Compare(a.MaxVersion-1, b.MaxVersion-1), // 0 means no limit
		cmp.Compare(suites(a), suites(b)), cmp.Compare(curvesOf(a), curvesOf(b)),
		cmp.Compare(len(a.NextProtos), len(b.NextProtos)),
		compareTrue(a.SessionTicketsDisabled, b.SessionTicketsDisabled))
}

// suites returns the number of cipher suites; TLS 1.3 has its own.
func suites(c *tls.Config) int {
	if c.MinVersion >= tls.VersionTLS13 {
		return 0
	}
	return len(c.CipherSuites)
}

// curvesOf returns the number of curves. None means those of crypto/tls, which are the most.
func curvesOf(c *tls.Config) int {
	if len(c.CurvePreferences) == 0 {
		return len(curves)
	}
	return len(c.CurvePreferences)
}

// compareTrue orders true before false.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
