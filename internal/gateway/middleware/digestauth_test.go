package middleware_test

import (
	"crypto/md5"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func md5Of(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }

// digest is a client's answer to a challenge.
type digest struct {
	user, password, realm, uri, count, change string
	// old is for a client of RFC 2069.
	old bool
}

// header returns the Authorization header for a challenge.
func (d digest) header(t *testing.T, challenge string) string {
	t.Helper()
	p := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(challenge, -1) {
		p[m[1]] = m[2]
	}
	ha1, ha2 := md5Of(d.user+":"+d.realm+":"+d.password), md5Of("GET:"+d.uri)
	text := fmt.Sprintf(`Digest username="%s", realm="%s",nonce="%s" , uri="%s", opaque=%s`, d.user, d.realm, p["nonce"],
		d.uri, p["opaque"])
	if d.old {
		return text + fmt.Sprintf(`, response="%s"`, md5Of(ha1+":"+p["nonce"]+":"+ha2))
	}
	response := md5Of(ha1 + ":" + p["nonce"] + ":" + d.count + ":c\"n:auth:" + ha2)
	text += fmt.Sprintf(`, algorithm=MD5, qop=auth, nc=%s, cnonce="c\"n", response="%s"`, d.count, response)
	if old, with, ok := strings.Cut(d.change, " "); ok {
		text = strings.ReplaceAll(text, old, with)
	}
	return text
}

func TestDigestAuth(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	value := gateway.DigestAuth{HeaderField: "X-User", RemoveHeader: true, Users: []string{
		"joe:traefik:" + md5Of("joe:traefik:pass"), "ann:other:" + md5Of("ann:other:pass")}}
	wrap := build(t, gateway.Middleware{DigestAuth: &value}, middleware.Deps{Now: c.time})
	handler := wrap(echo("X-User", "Authorization"))
	send := func(header string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/a%20b?c", nil)
		r.Header.Set("Authorization", header)
		r.Header.Set("X-User", "root")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	challenge := send("").Header().Get("WWW-Authenticate")
	good := digest{user: "joe", password: "pass", realm: "traefik", uri: "/a%20b?c", count: "00000001"}
	with := func(change func(*digest)) digest {
		d := good
		change(&d)
		return d
	}
	for _, step := range []struct {
		name   string
		digest digest
		want   int
		stale  bool
	}{
		{name: "right", digest: good, want: 200},
		{name: "sent again", digest: good, want: 401, stale: true},
		{name: "next count", digest: with(func(d *digest) { d.count = "00000005" }), want: 200},
		{name: "earlier count", digest: with(func(d *digest) { d.count = "00000003" }), want: 200},
		{name: "earlier count again", digest: with(func(d *digest) { d.count = "00000003" }), want: 401, stale: true},
		{name: "far count", digest: with(func(d *digest) { d.count = "000000ff" }), want: 200},
		{name: "too early count", digest: with(func(d *digest) { d.count = "00000006" }), want: 401, stale: true},
		{name: "no count", digest: with(func(d *digest) { d.count = "00000000" }), want: 401},
		{name: "old client after counts", digest: with(func(d *digest) { d.old = true }), want: 401, stale: true},
		{name: "wrong password", digest: with(func(d *digest) { d.password = "x" }), want: 401},
		{name: "unknown name", digest: with(func(d *digest) { d.user = "eve" }), want: 401},
		{name: "name of another realm", digest: with(func(d *digest) { d.user, d.realm = "ann", "other" }), want: 401},
		{name: "another path", digest: with(func(d *digest) { d.uri = "/a" }), want: 401},
		{name: "another algorithm", digest: with(func(d *digest) { d.change = "=MD5 =SHA-256" }), want: 401},
		{name: "another qop", digest: with(func(d *digest) { d.change = "qop=auth qop=auth-int" }), want: 401},
		{name: "another scheme", digest: with(func(d *digest) { d.change = "Digest Basic" }), want: 401},
		{name: "cut", digest: with(func(d *digest) { d.change = `response=" response=` }), want: 401},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := send(step.digest.header(t, challenge))
			stale := strings.Contains(got.Header().Get("WWW-Authenticate"), "stale=true")
			if got.Code != step.want || stale != step.stale {
				t.Errorf("status %d, stale %v, want %d, %v", got.Code, stale, step.want, step.stale)
			}
			if got.Code == 200 && got.Body.String() != "GET /a%20b?c X-User=joe Authorization=" {
				t.Errorf("body %q", got.Body)
			}
		})
	}
	old := with(func(d *digest) { d.old = true })
	second := send("").Header().Get("WWW-Authenticate")
	first, again := send(old.header(t, second)).Code, send(old.header(t, second)).Code
	if first != 200 || again != 401 {
		t.Errorf("a client without counts: status %d, then %d", first, again)
	}
	late := send("").Header().Get("WWW-Authenticate")
	c.pass(time.Hour)
	if got := send(good.header(t, late)); got.Code != 401 ||
		!strings.Contains(got.Header().Get("WWW-Authenticate"), "stale=true") {
		t.Errorf("an old nonce: status %d, %v", got.Code, got.Header())
	}
	forged := strings.Replace(good.header(t, challenge), `nonce="A`, `nonce="B`, 1)
	if got := send(forged); got.Code != http.StatusUnauthorized {
		t.Errorf("a forged nonce: status %d", got.Code)
	}
}

func TestDigestAuthRealm(t *testing.T) {
	value := gateway.DigestAuth{Realm: `my "realm"`, Users: []string{`joe:my "realm":` + md5Of("x")}}
	handler := build(t, gateway.Middleware{DigestAuth: &value}, middleware.Deps{})(echo())
	challenge := ask(handler, "").Header().Get("WWW-Authenticate")
	if !strings.HasPrefix(challenge, `Digest realm="my \"realm\"", nonce="`) {
		t.Errorf("the challenge is %s", challenge)
	}
}
