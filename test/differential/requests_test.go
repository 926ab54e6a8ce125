package differential_test

import "strings"

var methods = []string{"GET", "GET", "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"}

var targets = []string{"/", "/foo", "/foo/", "/foo/bar", "/foo/bar/baz?x=1", "/bar?x=2&y=3", "/foo%2Fbar",
	"/foo/../bar",
	"/foo//bar", "/foo/./bar?x", "/foo%20bar", "/FOO", "/foo;a=b/bar", "/?x=1;y=2", "/foo/%E4", "/foo/%252Fbar",
	"/foo?x=a%20b",
	"/%66oo/bar", "/foo/bar/../../..", "/foo/bar?x=1&x=2", "/foo+bar", "/a/b/c", "/foo%23x", "/foo%5Cbar",
	"/foo%3Fx", "/foobar",
	"/foo/.hidden", "/~user", "/foo?", "/login", "/foo/%2e%2e/bar",
	"/foo%2Fbar", "/foo%2Fbar", "/a%2Fb"}

// lines are lines of the header that requests may have.
var lines = []string{"Origin: https://a.test", "Origin: https://x.test", "Accept-Encoding: gzip",
	"Accept-Encoding: gzip, deflate, br, zstd", "Accept-Encoding: identity", "Accept-Encoding: br;q=0.5, gzip;q=0.9",
	"X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 192.0.2.7, 198.51.100.1", "X-Forwarded-Proto: https",
	"X-Forwarded-Host: a.test", "X-Forwarded-Port: 8443", "X-Forwarded-Prefix: /p", "X-Real-Ip: 192.0.2.9",
	"X-Forwarded-Server: evil", "X-Forwarded-Uri: /evil", "X-Forwarded-Method: PUT", "X_Forwarded_For: 192.0.2.7",
	"X.Forwarded.For: 192.0.2.7", "Forwarded: for=192.0.2.7", "X-A: 1", "X-A: x", "X-Gone: 1", "X-Key: k",
	"Cookie: lb=none; a=b", "Cookie: wk=one", "User-Agent: test/1", "Accept: text/html", "Te: trailers",
	"Connection: X-Hop, X-A\r\nX-Hop: 1", "Connection: close", "Keep-Alive: 5", "Proxy-Authorization: Basic eA==",
	"Proxy-Connection: keep-alive", "Authorization: Basic c2hhOnRlc3Q=", "Authorization: Basic YXByOnRlc3Q=",
	"Authorization: Basic c2hhOndyb25n", "Referer: http://a.test/x", "If-None-Match: \"x\"", "Range: bytes=0-3",
	"Accept-Language: de\r\nAccept-Language: en", "Cache-Control: no-cache", "X-Replaced-Path: /x", "X-User: root",
	"X-Forwarded-Ssl: on", "X-Forwarded-Tls-Client-Cert: x", "Upgrade: h2c", "Content-Type: text/css",
	"Access-Control-Request-Method: PUT\r\nOrigin: https://a.test\r\nAccess-Control-Request-Headers: X-A",
	"Access-Control-Request-Method: PUT\r\nOrigin: https://evil.example"}

// wants are answers that servers give.
var wants = []string{"status=200", "size=3000", "size=3000&type=application/json", "size=3000&type=image/png",
	"status=404",
	"status=500&size=20", "status=503", "status=204", "status=304", "status=304", "status=304&h=Etag:x",
	"status=301&h=Location:/x", "h=Set-Cookie:a=1&h=Set-Cookie:b=2",
	"h=X-Out:server&h=Server:nginx&h=X-Powered-By:php", "h=Vary:Accept&size=3000",
	"h=Cache-Control:no-transform&size=3000",
	"h=Access-Control-Allow-Origin:server", "h=Connection:X-Out&h=X-Out:1",
	"h=X-Frame-Options:ALLOW&h=Strict-Transport-Security:max-age=1", "h=Etag:x&size=3000", "size=50&h=Keep-Alive:5",
	"h=Trailer:X-T&size=20", "h=Www-Authenticate:Basic&status=401", "h=Content-Type:application/grpc&size=2000"}

// request returns a request to a host.
func (g *generator) request(name, host string) request {
	q := request{Name: name, Entry: "8000", Method: pick(g, methods), Target: pick(g, targets), Host: host,
		Servers: 0}
	switch g.IntN(10) {
	case 0:
		q.Host += ":8000"
	case 1:
		q.Host = strings.ToUpper(host)
	case 2:
		q.Host += "."
	}
	var names []string
	for range g.IntN(4) {
		line := pick(g, lines)
		if field, _, _ := strings.Cut(line, ":"); !hasLine(names, field) {
			q.Header, names = append(q.Header, line), append(names, field)
		}
	}
	if g.maybe(2) {
		q.Header = append(q.Header, wantHeader+": "+pick(g, wants))
	}
	if q.Method == "POST" || q.Method == "PUT" || q.Method == "PATCH" {
		q.Body = strings.Repeat("body", g.IntN(6))
	}
	return q
}
