package result

// Step is one hop: the difference between Path, which has it, and Over, the path of
// an earlier step, which does not.
type Step struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Over is empty for the first step.
	Over    string  `json:"over,omitempty"`
	Figures []Added `json:"figures"`
}

// Added is one figure of a step.
type Added struct {
	Client   Client `json:"client"`
	Workload string `json:"workload"`
	Metric   Metric `json:"metric"`
	Unit     string `json:"unit"`
	// Value is the median over the rounds for the whole path so far.
	Value float64 `json:"value"`
	// Added is the mean over rounds of the difference to the step before, with a
	// 95 % interval. P is its p-value, adjusted by Holm's method over the steps of
	// the figure.
	Added float64 `json:"added"`
	Low   float64 `json:"added_low"`
	High  float64 `json:"added_high"`
	P     float64 `json:"p"`
	// Sessions, SessionLow and SessionHigh are as in [Summary].
	Sessions    int     `json:"sessions,omitempty"`
	SessionLow  float64 `json:"added_session_low,omitempty"`
	SessionHigh float64 `json:"added_session_high,omitempty"`
	// Noise is the noise floor of Added, in the same unit.
	Noise float64 `json:"noise"`
	// Rounds counts the rounds that are valid for both steps; for the first step,
	// its own valid rounds.
	Rounds int `json:"rounds"`
	// Distinguishable is true if the interval (that with the session component, if there
	// were several sessions) excludes 0, Added is outside the
	// noise floor, and P is below 0.05.
	Distinguishable bool `json:"distinguishable"`
}

// Interval returns the 95 % interval on which Distinguishable is based: that with the
// session component, if there were several sessions.
func (a Added) Interval() (low, high float64) {
	if a.Sessions > 1 {
		return a.SessionLow, a.SessionHigh
	}
	return a.Low, a.High
}
