// Registers a file with Integrity Ledger, compares it and reads its record, through a client that NSwag makes:
//
//   nswag openapi2csclient /input:"$INTEGRITY_BASE_URL/api/integrity-openapi" /output:Client.cs \
//     /namespace:Integrity /classname:IntegrityClient /OperationGenerationMode:SingleClientFromOperationId
//
// The client needs the package Newtonsoft.Json. Run it with the variables of the quick start:  Register FILE DOCUMENT
//
// Save the declaration with the file in your own transaction, and send that same one again after a failure whose outcome
// you do not know (no answer, 408, 5xx): what had arrived is a replay.

using System;
using System.Globalization;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Security.Cryptography;
using System.Threading.Tasks;
using Integrity;

public static class Register
{
    public static int Main(string[] args)
    {
        return RegisterFile(args[0], args[1]).GetAwaiter().GetResult();
    }

    private static async Task<int> RegisterFile(string file, string document)
    {
        var bytes = File.ReadAllBytes(file);
        string hash;
        using (var sha256 = SHA256.Create())
        {
            hash = BitConverter.ToString(sha256.ComputeHash(bytes)).Replace("-", "").ToLowerInvariant();
        }
        var authenticated = new HttpClient();
        authenticated.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", Environment.GetEnvironmentVariable("INTEGRITY_API_KEY"));
        authenticated.DefaultRequestHeaders.Add("Integrity-Version", "csharp-sample/1");
        var records = Client(authenticated);
        var declaration = new Declaration
        {
            CompanyReference = Environment.GetEnvironmentVariable("INTEGRITY_COMPANY"), Source = "csharp", DocumentReference = document, Version = 1,
            Sha256 = hash, SizeBytes = bytes.Length, MimeType = "application/octet-stream",
            GeneratedAt = DateTime.UtcNow.ToString("yyyy-MM-ddTHH:mm:ssZ", CultureInfo.InvariantCulture),
        };
        try
        {
            var registered = (await records.RegisterRecordAsync(null, declaration)).Data;
            // Comparing needs no key, and the key is not sent with it.
            var compared = (await Client(new HttpClient()).ComparePubliclyAsync(registered.PublicId, hash, null)).Data;
            var record = (await records.GetRecordAsync(registered.PublicId, null, null)).Data;
            Console.WriteLine($"{compared.Result} {record.Status} {record.PublicId} {record.VerificationUrl}");
            return 0;
        }
        catch (ApiException<ApiFailure> refused)
        {
            Console.Error.WriteLine($"{refused.StatusCode} {refused.Result.Error.Code}: {refused.Result.Error.Detail}");
            return 1;
        }
    }

    private static IntegrityClient Client(HttpClient http)
    {
        return new IntegrityClient(http) { BaseUrl = Environment.GetEnvironmentVariable("INTEGRITY_BASE_URL") };
    }
}
