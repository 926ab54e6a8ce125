package peer

import (
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newNginx returns the maker of nginx with one worker per CPU. As its documentation
// advises, it keeps connections to the server (upstream keepalive, HTTP/1.1) and has
// no access log. Bodies are not written to files. It has sizes and time limits that no
// workload reaches: a connection that nginx closes would count as a failed request.
func newNginx(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p), needs: []rig.Program{{Name: "nginx", Package: "nginx-light"}},
		command: configured("nginx.conf", "nginx", "-p", "/mnt", "-e", "stderr", "-c", "/mnt/nginx.conf")}
}
