package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
)

var (
	testOrganization = domain.OrganizationID{1}
	testVersion      = domain.ArtifactVersionID{2}
)

// bucketServer is an S3 server with one bucket in memory. If refusal is set, it answers every request with that.
type bucketServer struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []*http.Request
	objects map[string]string // by path
	refuse  func(w http.ResponseWriter, n int) bool
}

func serveBucket(t *testing.T) *bucketServer {
	t.Helper()
	s := &bucketServer{objects: make(map[string]string)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	for _, name := range os.Environ() {
		if name, _, _ = strings.Cut(name, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
	return s
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.refuse != nil && s.refuse(w, len(s.asked)) {
		return
	}
	sum := sha256.Sum256(body)
	switch {
	case err != nil ||
		r.Header.Get("Authorization") != "" && r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		s3Error(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && s.objects[r.URL.Path] != "":
		w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 10:30:00 GMT")
		_, _ = io.WriteString(w, s.objects[r.URL.Path])
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path] = string(body)
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *bucketServer) last(t *testing.T) *http.Request {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		t.Fatal("the server was not asked")
	}
	return s.asked[len(s.asked)-1]
}

// url returns the URL of a server addressed by path, with more parameters.
func (s *bucketServer) url(more string) string {
	return "s3://bucket?region=eu-west-1&use_path_style=true&endpoint=" + s.URL + more
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<Error><Code>%s</Code><Message>%[1]s</Message></Error>`, code)
}

func (s *bucketServer) keep(t *testing.T, c *Store) error {
	t.Helper()
	return c.Keep(t.Context(), testOrganization, testVersion, strings.NewReader("bytes"), 5)
}

// TestBucket: a bucket stores bytes under the same names as a directory does, and the server can check them.
func TestBucket(t *testing.T) {
	s := serveBucket(t)
	sum := sha256.Sum256([]byte("bytes"))
	for more, want := range map[string]struct {
		path    string
		headers map[string]string
	}{
		"": {
			"/bucket/", map[string]string{"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:])},
		},
		"&prefix=a/b":     {"/bucket/a/b", nil},
		"&ssetype=AES256": {"/bucket/", map[string]string{"X-Amz-Server-Side-Encryption": "AES256"}},
		"&ssetype=aws:kms:dsse&kmskeyid=k": {"/bucket/", map[string]string{
			"X-Amz-Server-Side-Encryption": "aws:kms:dsse", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "k",
		}},
		"&request_checksum_calculation=when_required": {"/bucket/", map[string]string{"X-Amz-Checksum-Sha256": ""}},
	} {
		c := &Store{URL: s.url(more)}
		if err := errors.Join(c.Check(t.Context()), s.keep(t, c)); err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		path := want.path + contentName(testOrganization, testVersion)
		if s.objects[path] != "bytes" || len(s.objects) != 1 {
			t.Errorf("%s: kept are %v", more, s.objects)
		}
		asked := s.last(t)
		for name, value := range want.headers {
			if asked.Header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", more, name, asked.Header.Get(name), value)
			}
		}
		if asked.Header.Get("Content-Type") != "application/octet-stream" || asked.ContentLength != 5 ||
			!strings.Contains(asked.Header.Get("Authorization"), "Credential=key/") ||
			!strings.Contains(asked.Header.Get("Authorization"), "/eu-west-1/s3/") {
			t.Errorf("%s: %v", more, asked.Header)
		}
		for range 2 { // erasing missing bytes is no error
			if err := c.Remove(t.Context(), testOrganization, testVersion); err != nil || len(s.objects) != 0 {
				t.Errorf("%s: after removal %v: %v", more, s.objects, err)
			}
		}
	}
}

// TestFailingBucket: a failing server stores nothing and blocks no caller, and temporary errors are retried.
func TestFailingBucket(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(w http.ResponseWriter, n int) bool
		asked  int
		says   string // empty: the bytes are stored
	}{
		"busy twice": {func(w http.ResponseWriter, n int) bool { s3Error(w, 503, "SlowDown"); return true }, 3, "SlowDown"},
		"busy at first": {func(w http.ResponseWriter, n int) bool {
			if n > 2 {
				return false
			}
			s3Error(w, http.StatusServiceUnavailable, "SlowDown")
			return true
		}, 3, ""},
		"forbidden": {func(w http.ResponseWriter, _ int) bool {
			s3Error(w, 403, "AccessDenied")
			return true
		}, 1, "AccessDenied"},
		"wrong region": {func(w http.ResponseWriter, _ int) bool {
			s3Error(w, 400, "AuthorizationHeaderMalformed")
			return true
		}, 1, "AuthorizationHeaderMalformed"},
		"an answer that breaks off": {func(w http.ResponseWriter, _ int) bool {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error>")
			return true
		}, 1, "unexpected EOF"},
		"a page of HTML": {func(w http.ResponseWriter, _ int) bool {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<html>")
			return true
		}, 1, "does not exist"},
		"a redirection": {func(w http.ResponseWriter, _ int) bool {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			s3Error(w, http.StatusMovedPermanently, "PermanentRedirect")
			return true
		}, 1, "PermanentRedirect"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBucket(t)
			s.refuse = c.refuse
			store := &Store{URL: s.url("")}
			err := s.keep(t, store)
			var refusal *domain.Error
			if kept := len(s.objects) == 1; kept != (c.says == "") || kept != (err == nil) {
				t.Errorf("kept: %v", err)
			} else if err != nil && (!errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable ||
				!strings.Contains(err.Error(), c.says)) {
				t.Errorf("it does not say %q: %v", c.says, err)
			}
			if len(s.asked) != c.asked {
				t.Errorf("asked %d times, want %d", len(s.asked), c.asked)
			}
			if c.says != "" && (store.Remove(t.Context(), testOrganization, testVersion) == nil ||
				store.Check(t.Context()) == nil) {
				t.Error("the bytes are gone, or the bucket is there")
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		s := serveBucket(t)
		s.Close()
		if err := s.keep(t, &Store{URL: s.url("")}); err == nil || !strings.Contains(err.Error(), "connection refused") ||
			strings.Count(err.Error(), "/bucket/") != 1 {
			t.Error(err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		s := serveBucket(t)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		s.refuse = func(http.ResponseWriter, int) bool { cancel(); <-left; return true }
		defer close(left)
		err := (&Store{URL: s.url("")}).Keep(ctx, testOrganization, testVersion, strings.NewReader("bytes"), 5)
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("a file that ends early", func(t *testing.T) {
		s := serveBucket(t)
		err := (&Store{URL: s.url("")}).Keep(t.Context(), testOrganization, testVersion, strings.NewReader("byte"), 5)
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(s.asked) != 0 {
			t.Errorf("%d requests: %v", len(s.asked), err)
		}
	})
}

// TestCredentials: credentials are found in the places where the AWS SDKs look.
func TestCredentials(t *testing.T) {
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		result := r.Form.Get("Action")
		switch {
		case result != "":
			if result == "AssumeRole" && !strings.Contains(r.Header.Get("Authorization"), "Credential=key/") ||
				result != "AssumeRole" && r.Form.Get("WebIdentityToken") != "identity" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			fmt.Fprintf(w,
				`<%sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>`+
					`<Expiration>%s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`, result, r.Form.Get("RoleArn"), soon)
		case r.Method == http.MethodPut:
			_, _ = io.WriteString(w, "token")
		case strings.HasSuffix(r.URL.Path, "/security-credentials/") && r.Header.Get("X-Aws-Ec2-Metadata-Token") == "token":
			_, _ = io.WriteString(w, "instance")
		default:
			fmt.Fprintf(
				w, `{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":"s","Token":"t","Expiration":%q}`,
				filepath.Base(r.URL.Path), soon,
			)
		}
	}))
	defer machine.Close()
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shared := file(
		"credentials",
		"[default]\naws_access_key_id=shared\naws_secret_access_key=s\n[other]\naws_access_key_id=other\naws_secret_access_key=s\n",
	)
	token := file("token", "identity")
	for name, c := range map[string]struct {
		variables map[string]string
		more      string
		want      string // the key; empty: no request is sent; "-": the request is unsigned
	}{
		"variables before files": {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": shared}, "", "key"},
		"file": {
			map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SHARED_CREDENTIALS_FILE": shared}, "", "shared",
		},
		"profile variable": {
			map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SHARED_CREDENTIALS_FILE": shared, "AWS_PROFILE": "other"}, "",
			"other",
		},
		"profile":         {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": shared}, "&profile=other", "other"},
		"missing profile": {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": shared}, "&profile=third", ""},
		"container": {
			map[string]string{
				"AWS_ACCESS_KEY_ID": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": machine.URL + "/container",
				"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.URL,
			},
			"", "container",
		},
		"instance": {
			map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.URL}, "", "instance",
		},
		"nothing": {map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_DISABLED": "true"}, "", ""},
		"web identity": {map[string]string{
			"AWS_ACCESS_KEY_ID": "", "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:web",
			"AWS_ENDPOINT_URL_STS": machine.URL,
		}, "", "arn:web"},
		"role": {map[string]string{"AWS_ENDPOINT_URL_STS": machine.URL}, "&role=arn:role", "arn:role"},
		"role without its own": {
			map[string]string{"AWS_ENDPOINT_URL_STS": machine.URL, "AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_DISABLED": "true"},
			"&role=arn:role", "",
		},
		"anonymous": {nil, "&anonymous=true", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBucket(t)
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			err := (&Store{URL: s.url(c.more)}).Check(t.Context())
			if c.want == "" {
				if err == nil || len(s.asked) != 0 {
					t.Errorf("%d requests: %v", len(s.asked), err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "-" {
				if signed := s.last(t).Header.Get("Authorization"); signed != "" {
					t.Error(signed)
				}
			} else if signed := s.last(t).Header.Get("Authorization"); !strings.Contains(signed, "Credential="+c.want+"/") {
				t.Errorf("%q is not signed with %q", signed, c.want)
			}
		})
	}
}

// TestBucketURLs: endpoints and parameters are parsed, and errors name the mistake.
func TestBucketURLs(t *testing.T) {
	serveBucket(t)
	for query, want := range map[string]string{
		"":                                      "https://s3.amazonaws.com",
		"?fips=true&region=us-east-1":           "https://s3-fips.us-east-1.amazonaws.com",
		"?disable_https=true":                   "http://s3.amazonaws.com",
		"?endpoint=https://store.example:9000/": "https://store.example:9000",
		"?accelerate=true&dualstack=true":       "https://s3.amazonaws.com",
		"?response_checksum_validation=when_required&rate_limiter_capacity=5&awssdk=v2": "https://s3.amazonaws.com",
	} {
		b, err := openURL("s3://bucket"+query, nil)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if got := b.(*s3).client.EndpointURL().String(); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	dir := t.TempDir()
	for text, says := range map[string]string{
		"s3://bucket?endpoint=store.example:9000":                          "endpoint",
		"s3://bucket?endpoint=https://store.example/a":                     "endpoint",
		"s3://bucket?use_path_style=perhaps":                               "use_path_style",
		"s3://bucket?color=red":                                            `"color"`,
		"s3://bucket?role=admin&region=eu":                                 "role",
		"s3://bucket?fips=true":                                            "region",
		"s3://bucket?request_checksum_calculation=sometimes":               "request_checksum_calculation",
		"file://" + dir + "?color=red":                                     `"color"`,
		"file://" + dir + "?dir_file_mode=rwx":                             "dir_file_mode",
		"file://" + dir + "/missing":                                       "no such file",
		"file://" + dir + "?metadata=skip&no_tmp_dir=true&create_dir=true": "",
	} {
		err := (&Store{URL: text}).Check(t.Context())
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), "INTEGRITY_BLOB_URL: ")) {
			t.Errorf("%s: it does not say %q: %v", text, says, err)
		}
	}
}
