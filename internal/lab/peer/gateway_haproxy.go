package peer

import (
	"fmt"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newHAProxyHTTP returns the maker of HAProxy in HTTP mode with one thread per CPU, as
// by default. It shares connections to the server among all requests (http-reuse),
// splices large bodies, and has no log.
func newHAProxyHTTP(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p), needs: []rig.Program{{Name: "haproxy", Package: "haproxy"}},
		command: func(p suite.Path) ([]string, map[string]string) {
			return []string{"haproxy", "-db", "-f", "/mnt/haproxy.cfg"},
				map[string]string{"haproxy.cfg": haproxyHTTP(p)}
		}}
}

func haproxyHTTP(p suite.Path) string {
	at := addressesOf(p)
	return fmt.Sprintf(`global
 maxconn 11000
 no strict-limits
 tune.ssl.cachesize 0
defaults
 mode http
 http-reuse always
 option splice-auto
 option forwardfor
 timeout connect 2s
 timeout client 1h
 timeout server 1h
 timeout http-keep-alive 1h
 timeout tunnel 1h
frontend web
 bind %[1]s
 bind %[10]s ssl crt %[4]s alpn h2,http/1.1 no-tls-tickets
 http-request set-header X-Forwarded-Proto https if { ssl_fc }
 http-request set-header X-Forwarded-Proto http unless { ssl_fc }
 use_backend server if { hdr(host) -i %[5]s %[5]s:%[2]d %[5]s:%[3]d }
frontend tools
 bind %[11]s
 bind %[12]s ssl crt %[4]s alpn h2,http/1.1 no-tls-tickets
 use_backend web if { hdr(host) -i %[5]s %[5]s:%[7]d %[5]s:%[9]d }
backend server
 server workload %[6]s pool-purge-delay 1h
backend web
 server workload %[8]s pool-purge-delay 1h
`, at.plain, rig.LoadPort, rig.TLSPort, "/mnt/"+bothFile, load.Host, at.upstream, rig.WebPort,
		at.upstreamWeb, rig.SecureWebPort, at.tls, at.web, at.secureWeb)
}
