package tool

import (
	"fmt"

	"fairlead/internal/lab/certificate"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// nginxFiles makes nginx answer every request from memory, without TLS on WebPort and with TLS
// on SecureWebPort, with one process because Fairlead's generator has one server. Nginx must
// write its pid to a file, which it unlinks when it ends. With /dev/null that would remove
// the device, so it gets the in-memory file that contained the configuration.
func nginxFiles(f result.Family) ([]string, error) {
	at := ""
	if f.Is6() {
		at = "[::]:"
	}
	cert, err := certificate.New(load.Host)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf(`daemon off; master_process off; pid /proc/self/fd/3; error_log stderr;
events { worker_connections 4096; }
http {
	access_log off; keepalive_requests 1000000000;
	ssl_certificate /proc/self/fd/4; ssl_certificate_key /proc/self/fd/5; ssl_protocols TLSv1.2 TLSv1.3;
	ssl_session_cache off; ssl_session_tickets off;
	server {
		listen %[1]s%[2]d;
		listen %[1]s%[3]d ssl http2;
		location / { return 200 "ok\n"; }
	}
}
`, at, rig.WebPort, rig.SecureWebPort), string(cert.Chain), string(cert.Key)}, nil
}

func nginxServer(suite.Workload) []string {
	return []string{"nginx", "-p", "/tmp", "-e", "stderr", "-c", "/proc/self/fd/3"}
}
