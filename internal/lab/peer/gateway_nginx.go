package peer

import (
	"fmt"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newNginx returns the maker of nginx with one worker per CPU. As its documentation
// advises, it keeps connections to the server (upstream keepalive, HTTP/1.1) and has
// no access log. Bodies are not written to files.
func newNginx(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p), needs: []rig.Program{{Name: "nginx", Package: "nginx-light"}},
		command: func(p suite.Path) ([]string, map[string]string) {
			return []string{"nginx", "-p", "/mnt", "-e", "stderr", "-c", "/mnt/nginx.conf"},
				map[string]string{"nginx.conf": nginxConfig(p)}
		}}
}

// nginxConfig has sizes and time limits that no workload reaches: a connection that
// nginx closes would count as a failed request.
func nginxConfig(p suite.Path) string {
	at := addressesOf(p)
	return fmt.Sprintf(`daemon off; user root; worker_processes auto; worker_rlimit_nofile 20000; pid /mnt/nginx.pid;
error_log stderr crit;
events { worker_connections 16384; }
http {
	access_log off; server_tokens off;
	keepalive_requests 1000000000; keepalive_timeout 1h;
	client_max_body_size 0; proxy_request_buffering off; proxy_max_temp_file_size 0;
	proxy_buffers 16 32k;
	ssl_certificate %[1]s; ssl_certificate_key %[2]s; ssl_protocols TLSv1.2 TLSv1.3;
	ssl_session_cache off; ssl_session_tickets off;
	upstream server { server %[3]s; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 1h; }
	upstream web { server %[8]s; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 1h; }
	proxy_http_version 1.1; proxy_read_timeout 1h;
	proxy_set_header Connection $connection_of_server; proxy_set_header Upgrade $http_upgrade;
	proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
	proxy_set_header X-Forwarded-Proto $scheme;
	map $http_upgrade $connection_of_server { default upgrade; '' ''; }
	server {
		listen %[4]s default_server reuseport backlog=4096;
		listen %[5]s default_server reuseport backlog=4096 ssl http2;
		return 404;
	}
	server {
		listen %[4]s; listen %[5]s ssl http2; server_name %[7]s;
		location / { proxy_pass http://server; }
	}
	server {
		listen %[6]s reuseport backlog=4096; listen %[9]s reuseport backlog=4096 ssl http2;
		server_name %[7]s;
		location / { proxy_pass http://web; }
	}
}
`, "/mnt/"+program.ChainFile, "/mnt/"+program.KeyFile, at.upstream, at.plain, at.tls, at.web, load.Host,
		at.upstreamWeb, at.secureWeb)
}
