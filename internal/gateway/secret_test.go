package gateway_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// marker is in each secret of the tests.
const marker = "hunter2"

// forms are texts with a secret for each kind of field, valid ones and broken ones.
var forms = map[string][]string{
	model.SecretWhole: {marker},
	model.SecretUser:  {"ann:" + marker, marker, "ann:r:" + marker},
	model.SecretKey:   {"-----BEGIN PRIVATE KEY-----\n" + marker},
	model.SecretURL: {"http://ann:" + marker + "@127.0.0.1:1/?token=" + marker, "//ann:" + marker + "@",
		"ftp://ann:" + marker + "@192.0.2.1", "/?api_key=" + marker},
	model.SecretHeaders: {marker},
}

// filler fills values of the model. Each secret field gets the form with the number n of its kind, modulo
// their count; it counts the secrets.
type filler struct{ n, secrets int }

// fill returns a value in which each field is set. Fields without a secret have texts that are no names of
// objects.
func (f *filler) fill(v reflect.Value, secret string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), secret)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), model.SecretOf(v.Type().Field(i)))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), secret)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		f.fill(e, secret)
		v.SetMapIndex(reflect.ValueOf("Authorization").Convert(v.Type().Key()), e)
	case reflect.String:
		v.SetString("x")
		if secret != "" {
			f.secrets++
			v.SetString(forms[secret][f.n%len(forms[secret])])
		}
	case reflect.Int64:
		v.SetInt(int64(time.Minute))
	}
}

// alternatives returns a value of the union T for each of its fields, filled, by the field's name.
func alternatives[T any](f *filler) map[string]*T {
	all := map[string]*T{}
	for i := range reflect.TypeFor[T]().NumField() {
		v := new(T)
		f.fill(reflect.ValueOf(v).Elem().Field(i), model.SecretOf(reflect.TypeFor[T]().Field(i)))
		all[fmt.Sprintf("%s%d@file", strings.ToLower(reflect.TypeFor[T]().Field(i).Name), f.n)] = v
	}
	return all
}

// secretConfig has a secret in each field that can have one, in objects that routers use.
func secretConfig(f *filler) *model.Config {
	var c model.Config
	c.HTTP.Middlewares, c.HTTP.Services = alternatives[model.Middleware](f), alternatives[model.Service](f)
	c.TCP.Services, c.TCP.Middlewares = alternatives[model.TCPService](f), alternatives[model.TCPMiddleware](f)
	f.fill(reflect.ValueOf(&c.HTTP.ServersTransports).Elem(), "")
	f.fill(reflect.ValueOf(&c.TLS).Elem(), "")
	c.HTTP.Routers, c.TCP.Routers = map[string]*model.Router{}, map[string]*model.TCPRouter{}
	// The load balancer is valid but for its URL, so that its check fails.
	for _, s := range c.HTTP.Services {
		if s.LoadBalancer != nil {
			s.LoadBalancer.ServersTransport, s.LoadBalancer.Strategy, s.LoadBalancer.HealthCheck.Mode = "", "", ""
			s.LoadBalancer.Servers[0] = model.Server{URL: s.LoadBalancer.Servers[0].URL}
		}
	}
	for name, m := range c.HTTP.Middlewares {
		if m.ForwardAuth != nil {
			m.ForwardAuth.TLS = nil
		}
		c.HTTP.Routers["m"+name] = &model.Router{Rule: "Host(`" + strings.TrimSuffix(name, "@file") + ".test`)",
			Middlewares: []string{name}, Service: "ok@file"}
	}
	c.HTTP.Services["ok@file"] = serviceOf("http://127.0.0.1:1")
	for name := range c.HTTP.Services {
		c.HTTP.Routers["s"+name] = &model.Router{Rule: "PathPrefix(`/" + name + "`)", Service: name}
	}
	return &c
}

// buffer is a log that several goroutines write. checked is closed when a check has failed.
type buffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	failed  sync.Once
	checked chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes.Contains(p, []byte("server changed")) {
		b.failed.Do(func() { close(b.checked) })
	}
	return b.text.Write(p)
}

// TestSecretsAreHidden puts a marker into each field that can have a secret, and searches all that the
// gateway shows.
func TestSecretsAreHidden(t *testing.T) {
	log := &buffer{checked: make(chan struct{})}
	total := 0
	for n := range 4 {
		f := &filler{n: n}
		c := secretConfig(f)
		total += f.secrets
		c.HTTP.Routers["api@file"] = &model.Router{Rule: "PathPrefix(`/api`)", Priority: 1 << 20,
			Service: "api@internal"}
		c.HTTP.Routers["metrics@file"] = &model.Router{Rule: "Path(`/metrics`)", Priority: 1 << 21,
			Service: "prometheus@internal"}
		w := newLoggedWorld(t, model.Static{API: &model.API{}, Metrics: &model.Metrics{ManualRouting: true}},
			slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		shown := map[string]string{"statuses": fmt.Sprintf("%+v", w.gateway.Apply(c, nil))}
		for _, path := range []string{"/api/rawdata", "/api/entrypoints", "/api/overview", "/api/certificates",
			"/metrics"} {
			_, shown[path] = w.get("http://a.test" + path)
		}
		for name, r := range c.HTTP.Routers {
			url := "http://" + strings.TrimSuffix(strings.TrimPrefix(name, "m"), "@file") + ".test/"
			if strings.HasPrefix(r.Rule, "PathPrefix") {
				url = "http://a.test/" + r.Service
			}
			_, shown["answer of "+name] = w.get(url)
			a, err := w.gateway.Explain("web", "GET", url)
			shown["explanation of "+name] = fmt.Sprintf("%+v %v", a, err)
		}
		for what, text := range shown {
			if strings.Contains(text, marker) {
				t.Errorf("form %d: %s has the marker: %.2000s", n, what, text)
			}
		}
		if !strings.Contains(shown["/api/rawdata"], model.Hidden) {
			t.Errorf("the API hides nothing: %.300s", shown["/api/rawdata"])
		}
	}
	select {
	case <-log.checked:
	case <-time.After(time.Minute):
		t.Error("no check of a server has failed")
	}
	if total < 4*20 {
		t.Errorf("%d secrets were set: the fields have lost their tags", total)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if text := log.text.String(); strings.Contains(text, marker) {
		t.Errorf("the log has the marker: %s", text)
	}
}

func TestShown(t *testing.T) {
	for _, tt := range [][4]string{
		{model.SecretURL, "", "http://10.0.0.2:80/x?y=z", "http://10.0.0.2:80/x?y=z"},
		{model.SecretURL, "", "http://ann@10.0.0.2/", "http://ann@10.0.0.2/"},
		{model.SecretURL, "", "http://ann:pw@10.0.0.2/", "http://ann:(hidden)@10.0.0.2/"},
		{model.SecretURL, "", "http://ann:p@w@10.0.0.2", "http://ann:(hidden)@10.0.0.2"},
		{model.SecretURL, "", "/h?a=b&access%5Ftoken=x&c", "/h?a=b&access%5Ftoken=(hidden)&c"},
		{model.SecretURL, "", "/%zz?%zz=x", "/%zz?%zz=(hidden)"},
		{model.SecretURL, "", "ann:pw@10.0.0.2:80", "ann:(hidden)@10.0.0.2:80"},
		{model.SecretUser, "", "ann:$2y$05$x", "ann:(hidden)"},
		{model.SecretUser, "", "$2y$05$x", "(hidden)"},
		{model.SecretKey, "", "/etc/key.pem", "/etc/key.pem"},
		{model.SecretHeaders, "X-Api-Key", "x", "(hidden)"},
		{model.SecretHeaders, "X-Forwarded-Proto", "https", "https"},
		{model.SecretWhole, "", "", ""},
		{"", "", "x", "x"},
	} {
		if got := model.Shown(tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("Shown(%q, %q, %q) = %q, want %q", tt[0], tt[1], tt[2], got, tt[3])
		}
	}
}
