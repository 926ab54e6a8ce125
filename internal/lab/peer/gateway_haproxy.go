package peer

import (
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newHAProxyHTTP returns the maker of HAProxy in HTTP mode with one thread per CPU, as
// by default. It shares connections to the server among all requests (http-reuse),
// splices large bodies, and has no log.
func newHAProxyHTTP(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p), needs: []rig.Program{{Name: "haproxy", Package: "haproxy"}},
		command: configured("haproxy.cfg", "haproxy", "-db", "-f", "/mnt/haproxy.cfg")}
}
