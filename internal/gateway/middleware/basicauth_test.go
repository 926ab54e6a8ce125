package middleware_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// users have the password "test", but for long. `openssl passwd` and crypt(3) made the
// hashes.
var users = []string{
	"apr:$apr1$H6uskkkW$IgXLP6ewTrSuBkTrqE8wj/",
	"long:$apr1$abc$rNH2PQGp1aSJi0KvGsTc61",
	"md5:$1$abcdefgh$irWbblnpmw.5z7wgBnprh0",
	"sha:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=",
	"bcr:$2y$05$abcdefghijklmnopqrstuuMceFj4VbmHOj8C7PetMxzZkwre/z.Ri",
}

func basic(user, password string) map[string]string {
	return map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

// with returns the headers and one more.
func with(headers map[string]string, name, value string) map[string]string {
	headers[name] = value
	return headers
}

func TestBasicAuth(t *testing.T) {
	refused := map[string]string{"Www-Authenticate": `Basic realm="traefik"`}
	run(t, gateway.Middleware{BasicAuth: &gateway.BasicAuth{Users: users}}, echo("Authorization"), []request{
		{name: "no name", status: 401, wantHeader: refused},
		{name: "other scheme", header: map[string]string{"Authorization": "Bearer x"}, status: 401},
		{name: "broken base64", header: map[string]string{"Authorization": "Basic ###"}, status: 401},
		{name: "unknown name", header: basic("eve", "test"), status: 401, wantHeader: refused},
		{name: "empty name", header: basic("", "test"), status: 401},
		{name: "apr1", header: basic("apr", "test"), want: "GET / Authorization=Basic YXByOnRlc3Q="},
		{name: "apr1 wrong", header: basic("apr", "tes"), status: 401},
		{name: "apr1 empty", header: basic("apr", ""), status: 401},
		{name: "apr1 long", header: basic("long", "a very long password, of more than 32 bytes")},
		{name: "md5", header: basic("md5", "test")},
		{name: "sha", header: basic("sha", "test")},
		{name: "sha wrong", header: basic("sha", "Test"), status: 401},
		{name: "bcrypt", header: basic("bcr", "test")},
		{name: "bcrypt again", header: basic("bcr", "test")},
		{name: "bcrypt wrong after right", header: basic("bcr", "test2"), status: 401},
		{name: "digest of another user", header: basic("apr", "bcr:test"), status: 401},
	})
}

func TestBasicAuthOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "htpasswd")
	text := "# a comment\n\n " + users[0] + "\nsha:{SHA}AAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	value := gateway.BasicAuth{UsersFile: file, Users: users[3:4], Realm: `my "realm"`, RemoveHeader: true,
		HeaderField: "X-User"}
	run(t, gateway.Middleware{BasicAuth: &value}, echo("Authorization", "X-User", "X_User", "X_user"), []request{
		{name: "realm", status: 401, wantHeader: map[string]string{"Www-Authenticate": `Basic realm="my \"realm\""`}},
		{name: "from the file", header: with(basic("apr", "test"), "X-User", "root"),
			want: "GET / Authorization= X-User=apr X_User= X_user="},
		{name: "the list replaces the file", header: with(basic("sha", "test"), "X_User", "root"),
			want: "GET / Authorization= X-User=sha X_User= X_user="},
	})
}

// TestBasicAuthInParallel checks names and passwords at the same time, for the race
// detector and for verdicts that goroutines mix up.
func TestBasicAuthInParallel(t *testing.T) {
	value := gateway.Middleware{BasicAuth: &gateway.BasicAuth{Users: users}}
	server := serve(t, build(t, value, middleware.Deps{})(echo()))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			want := request{header: basic("bcr", "test")}
			if i%2 == 1 {
				want = request{header: basic("bcr", "wrong"), status: 401}
			}
			want.check(t, server.URL)
		})
	}
	all.Wait()
}
