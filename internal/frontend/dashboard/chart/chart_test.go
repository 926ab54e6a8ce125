package chart

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/history"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pictures in testdata")

// hour returns figures of an hour: a sample every ten seconds, of values that depend on its age.
func hour(values map[string]func(age float64) float64) api.History {
	h := api.History{Series: map[string][]api.Figure{}}
	for age := 3590.0; age >= 0; age -= 10 {
		h.Ages = append(h.Ages, age)
		for key, value := range values {
			h.Series[key] = append(h.Series[key], api.Figure(value(age)))
		}
	}
	return h
}

// wave is a value between 0 and most, with a period in seconds.
func wave(most, period float64) func(float64) float64 {
	return func(age float64) float64 { return most / 2 * (1 + math.Sin(age/period*2*math.Pi)) }
}

// without has no value between two ages.
func without(from, to float64, value func(float64) float64) func(float64) float64 {
	return func(age float64) float64 {
		if age <= from && age >= to {
			return math.NaN()
		}
		return value(age)
	}
}

// TestPictures compares charts with those in testdata. `go test -update` writes them; look at them before you commit
// them.
func TestPictures(t *testing.T) {
	usual := hour(map[string]func(float64) float64{
		history.Requests:       wave(180, 3000),
		history.ServerErrors:   without(2400, 1800, wave(2, 1200)),
		history.ClientErrors:   wave(7, 900),
		history.RequestSeconds: wave(0.2, 2000),
		history.BytesIn:        wave(3<<20, 3000),
		history.BytesOut:       wave(17<<20, 2500),
		history.CPUKernel:      wave(0.31, 2000),
		history.CPUGateway:     wave(0.05, 3500),
		history.Conntrack:      wave(0.4, 3000),
		history.Drops:          func(age float64) float64 { return max(0, 3-math.Abs(age-600)/10) },
	})
	gap := hour(map[string]func(float64) float64{history.Requests: wave(180, 3000)})
	gap.Ages, gap.Series[history.Requests] = gap.Ages[200:], gap.Series[history.Requests][200:]
	for i := range 80 { // the host was suspended for half an hour
		gap.Ages[i] += 1800
	}
	for name, h := range map[string]api.History{"usual": usual, "gap": gap,
		"single":  {Ages: []float64{1200, 0}, Series: map[string][]api.Figure{history.Requests: {5, api.Unknown()}}},
		"nothing": hour(map[string]func(float64) float64{history.Requests: func(float64) float64 { return 0 }})} {
		pages := []string{"now"}
		if name == "usual" {
			pages = append(pages, "routers")
		}
		for _, page := range pages {
			var text strings.Builder
			for _, c := range Of(page, h) {
				text.WriteString(string(c.SVG) + "\n")
			}
			file := filepath.Join("testdata", name+"-"+page+".svg")
			if *update {
				if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text.String()); diff != "" {
				t.Errorf("%s: %s", file, diff)
			}
		}
	}
}

// TestNoStyleInPictures: the content security policy refuses styles and scripts.
func TestNoStyleInPictures(t *testing.T) {
	h := hour(map[string]func(float64) float64{history.Requests: wave(1, 100), history.BytesIn: wave(1e9, 100)})
	for _, c := range Of("now", h) {
		for _, bad := range []string{"style", "<script", "http", "href", " on"} {
			if strings.Contains(string(c.SVG), bad) {
				t.Errorf("the chart %s has %s", c.ID, bad)
			}
		}
		if len(c.Table.Rows) != 12 {
			t.Errorf("the table of %s has %d rows", c.ID, len(c.Table.Rows))
		}
	}
	if got := Of("now", api.History{}); got != nil {
		t.Errorf("without figures: %v", got)
	}
}

// TestChartsAreDrawnOncePerSample: a hundred viewers cost as much as one, and none costs nothing.
func TestChartsAreDrawnOncePerSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, fails := 0, false
		charts := Live(func(context.Context) (api.History, error) {
			read++
			if fails {
				return api.History{}, errors.New("the daemon is gone")
			}
			return hour(map[string]func(float64) float64{history.Requests: wave(float64(read), 100)}), nil
		})
		time.Sleep(time.Minute)
		for range 100 {
			if len(charts("now")) != 1 || len(charts("routers")) != 1 || len(charts("ports")) != 0 {
				t.Fatal(charts("now"), charts("routers"), charts("ports"))
			}
		}
		if read != 1 {
			t.Errorf("the figures were read %d times", read)
		}
		first := charts("now")[0].SVG
		time.Sleep(history.Every)
		if charts("now")[0].SVG == first || read != 2 {
			t.Error("the chart is as it was")
		}
		fails = true
		time.Sleep(history.Every)
		if len(charts("now")) != 1 || read != 3 {
			t.Error("without the daemon, the earlier chart is gone")
		}
	})
}

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{"0": number(0), "0.12": number(0.12), "< 0.01": number(0.001),
		"1":    number(1),
		"12.3": number(12.34), "123": number(123.4), "1.23 k": number(1234), "5 T": number(5e12),
		"9999 T": number(9999e12),
		"512 B":  bytes(512), "1.5 KiB": bytes(1536), "0 B": bytes(0), "31 %": percent(0.31), "0.5 %": percent(0.005),
		"250 %": percent(2.5), "12 ms": duration(0.012), "1.5 s": duration(1.5), "< 0.01 ms": duration(1e-6)} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 3: 5, 7: 10, 4999: 5000} {
		if got := ceiling(v, false); got != want {
			t.Errorf("the scale of %v ends at %v, want %v", v, got, want)
		}
	}
	if got := ceiling(1000, true); got != 1024 {
		t.Errorf("the scale of 1000 bytes ends at %v", got)
	}
}
