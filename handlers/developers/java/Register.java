// Registers a file with Integrity Ledger, compares it and reads its record, through a client that OpenAPI Generator makes:
//
//   openapi-generator-cli generate -g java --library native -i "$INTEGRITY_BASE_URL/api/integrity-openapi" -o client \
//     --additional-properties=apiPackage=integrity.api,modelPackage=integrity.model,invokerPackage=integrity,openApiNullable=false
//
// Java 17. The client needs jackson-databind, jackson-datatype-jsr310 and swagger-annotations. Run it with the variables of
// the quick start:  java -cp ... Register.java FILE DOCUMENT
//
// Save the declaration with the file in your own transaction, and send that same one again after a failure whose outcome
// you do not know (no answer, 408, 5xx): what had arrived is a replay.

import integrity.ApiClient;
import integrity.ApiException;
import integrity.api.PublicApi;
import integrity.api.RecordsApi;
import integrity.model.Comparison;
import integrity.model.Declaration;
import integrity.model.RecordView;
import integrity.model.Registration;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;

public final class Register {
    public static void main(String[] args) throws Exception {
        byte[] bytes = Files.readAllBytes(Path.of(args[0]));
        String hash = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));

        ApiClient authenticated = client();
        authenticated.setRequestInterceptor(request -> request
            .header("Authorization", "Bearer " + System.getenv("INTEGRITY_API_KEY"))
            .header("Integrity-Version", "java-sample/1"));
        RecordsApi records = new RecordsApi(authenticated);
        Declaration declaration = new Declaration()
            .companyReference(System.getenv("INTEGRITY_COMPANY")).source("java").documentReference(args[1]).version(1L)
            .sha256(hash).sizeBytes((long) bytes.length).mimeType("application/octet-stream")
            .generatedAt(Instant.now().truncatedTo(ChronoUnit.SECONDS).toString());
        try {
            Registration registered = records.registerRecord(declaration, null).getData();
            // Comparing needs no key, and the key is not sent with it.
            Comparison compared = new PublicApi(client()).comparePublicly(registered.getPublicId(), hash, null).getData();
            RecordView record = records.getRecord(registered.getPublicId(), null, null).getData();
            System.out.println(compared.getResult() + " " + record.getStatus() + " " + record.getPublicId() + " " + record.getVerificationUrl());
        } catch (ApiException refused) {
            System.err.println(refused.getCode() + " " + refused.getResponseBody());
            System.exit(1);
        }
    }

    private static ApiClient client() {
        URI base = URI.create(System.getenv("INTEGRITY_BASE_URL"));
        ApiClient client = new ApiClient();
        client.setScheme(base.getScheme());
        client.setHost(base.getHost());
        client.setPort(base.getPort());
        client.setReadTimeout(Duration.ofSeconds(30)); // to the answer's headers; without it, silence is waited for without end
        return client;
    }
}
