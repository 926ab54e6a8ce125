package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// fill sets every text of a value to a unique word with the prefix, in the form that a secret has in the
// field, and returns the words by their paths.
func fill(v reflect.Value, path, kind string, words map[string]string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, kind, words)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			of := gateway.SecretOf(f)
			if of == "" {
				of = kind
			}
			fill(v.Field(i), path+"."+f.Name, of, words)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i), kind, words)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, path+"{}", kind, words)
		v.SetMapIndex(reflect.ValueOf("X-Name"), e)
	case reflect.String:
		word := fmt.Sprintf("canary%04dx", len(words))
		form := map[string]string{"": "plain", gateway.SecretUser: "admin:$apr1$" + word, gateway.SecretWhole: word,
			gateway.SecretKey:     "-----BEGIN PRIVATE KEY-----\n" + word + "\n-----END PRIVATE KEY-----\n",
			gateway.SecretHeaders: word, gateway.SecretURL: "https://user:" + word + "@host/path?token=" + word}[kind]
		switch kind {
		case "":
		case gateway.SecretUser:
			words[path] = "$apr1$" + word
		default:
			words[path] = word
		}
		v.SetString(form)
	}
}

// TestValues hides every field of the gateway that can have a secret, in the value and in other texts.
func TestValues(t *testing.T) {
	var w struct {
		Static gateway.Static
		Config gateway.Config
	}
	words := map[string]string{}
	fill(reflect.ValueOf(&w).Elem(), "", "", words)
	if len(words) < 30 {
		t.Fatalf("only %d secrets", len(words))
	}
	var s Secrets
	s.Value(&w)
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	for path, word := range words {
		if strings.Contains(string(text), word) {
			t.Errorf("%s is shown", path)
		}
		log := "level=WARN msg=refused detail=\"value " + word + " of it\""
		if hidden := string(s.Hide([]byte(log))); strings.Contains(hidden, word) {
			t.Errorf("%s is shown in a log: %s", path, hidden)
		}
	}
}

// TestChecks hides what health checks of virtual services can have.
func TestChecks(t *testing.T) {
	w := model.Desired{Services: []model.VirtualService{{Name: "web", Check: model.Check{Type: model.CheckExec,
		Command: []string{"/bin/check", "canary1", "--password=canary2"}, Send: "AUTH canary3", Expect: "canary4",
		Path: "/health?token=canary5"}}}}
	var s Secrets
	s.Value(&w)
	shown, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	text := string(shown) + string(s.Hide([]byte("canary1 AUTH canary3 canary4 canary5 --password=canary2")))
	if strings.Contains(text, "canary") || !strings.Contains(text, "/bin/check") {
		t.Error(text)
	}
}

// TestHide hides secrets of other sources, and what looks like a credential.
func TestHide(t *testing.T) {
	var s Secrets
	s.Environment([]string{"CF_DNS_API_TOKEN=canary1", "HETZNER_API_KEY=canary2", "PATH=/usr/bin", "SMTP_PASS=canary3",
		"DOCKER_HOST=tcp://me:canary4@192.0.2.1:2375", "EDITOR=vi"})
	s.JSON([]byte(`{"etcd": {"endpoints": ["https://u:canary5@e:2379"], "user": "root", "password": "canary6"},
		"tokens": [{"secret": "canary\"7"}], "node": {"key": "-----BEGIN X-----\ncanary8\n"}}`))
	for _, text := range []string{
		"canary1 canary2 canary3 canary4 canary5 canary6 canary8", `{"a": "canary\"7"}`,
		"https://canary@host/", "tcp://user:canary/x@host:2375", "dial https://u:canary@e:1: refused",
		"fairlead cluster join fljoin1.canary", "Authorization: Bearer canary.1",
		"authorization=Basic Y2FuYXJ5canary==",
		"users=admin:$2y$05$canary", "admin:$apr1$x$canary", "admin:{SHA}canary=",
		"-----BEGIN RSA PRIVATE KEY-----\ncanary\n-----END RSA PRIVATE KEY-----",
		`"key": "-----BEGIN PRIVATE KEY-----\ncanary\n`, "password=canary", "password: canary", `"apiKey": "canary"`,
		`{"db_password":"canary"}`, `msg="token=canary"`, `detail="{\"secret\":\"canary\"}"`,
		"mysqld --password canary", "mysqld --password=canary", `["mysqld", "--root-password", "canary"]`,
		"GET /x?access_token=canary&b=c",
	} {
		if got := string(s.Hide([]byte(text))); strings.Contains(got, "canary") {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
	for _, text := range []string{"tcp 0.0.0.0:80 nginx", `{"tokens": [], "name": "web"}`, "fairlead.service: started",
		"https://example.com/path?b=c", "ip link add fl-web type bridge", "basic authentication", "/usr/bin vi"} {
		if got := string(s.Hide([]byte(text))); got != text {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
}
